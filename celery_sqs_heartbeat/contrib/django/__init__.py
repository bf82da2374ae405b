"""A Django app: `INSTALLED_APPS += ["celery_sqs_heartbeat.contrib.django"]`."""
