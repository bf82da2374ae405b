"""The Celery app of the Django site: `celery -A django_site worker --heartbeat-sqs`."""

import os

from celery import Celery
from celery_sqs_heartbeat import install

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_site.settings")

app = install(Celery("django_site"))
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["studio"])
app.set_default()
