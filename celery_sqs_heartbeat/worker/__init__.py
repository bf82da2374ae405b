"""Plugs the heartbeat into a Celery worker."""
