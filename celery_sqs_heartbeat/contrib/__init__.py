"""Integrations with web frameworks and celery-batches. No other module imports them."""
