"""Asks SQS about queues."""
