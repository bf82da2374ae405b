"""What the heartbeat costs a worker: CPU, memory, and tasks per second."""
