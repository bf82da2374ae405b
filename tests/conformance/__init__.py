"""The behaviour of SQS, on the simulated one and on other servers."""
