"""A synthetic fleet: journals of any size from the simulated SQS, and the true duplicates."""
