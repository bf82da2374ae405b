"""The keeper of leases as a consumer without Celery has it."""
