"""Reads a Celery app's configuration, without a call to SQS."""
