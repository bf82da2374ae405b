"""Scenarios of NServiceBus on SQS."""
