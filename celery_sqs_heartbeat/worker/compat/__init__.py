"""What the heartbeat needs of other packages beyond what they promise, and whether it is there."""
