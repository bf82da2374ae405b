"""Reads what a Celery app is configured to do, without asking SQS."""
