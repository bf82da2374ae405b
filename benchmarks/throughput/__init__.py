"""Tasks per second of a worker, stock beside ours, by the time that a call takes."""
