"""A synthetic fleet: journals of any size from the simulated SQS, with the truth beside them."""
