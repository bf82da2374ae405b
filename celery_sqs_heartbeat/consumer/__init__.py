"""The lease keeper for consumers without Celery."""
