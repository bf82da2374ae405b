"""Connects the heartbeat to a Celery worker."""
