"""Celery's and kombu's own tests, with our worker and our channel in place of theirs."""
