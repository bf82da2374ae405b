"""Settings of the Django site."""

import os
from pathlib import Path

# Import nothing that imports tasks: they would read settings that do not exist yet.
from studio import broker

DEBUG = os.environ.get("DJANGO_DEBUG") == "1"
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "change me" if DEBUG else "")
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "127.0.0.1,localhost").split(",")

INSTALLED_APPS = [
    "django.contrib.staticfiles",
    "celery_sqs_heartbeat.contrib.django",  # system checks, and `manage.py sqs_heartbeat_doctor`
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
ROOT_URLCONF = "django_site.urls"
WSGI_APPLICATION = "django_site.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).parents[1] / "studio" / "templates"],
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    }
]
DATABASES: dict[str, dict[str, str]] = {}
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"  # for log lines; the page shows times in the reader's zone

CELERY_BROKER_URL = broker.URL
CELERY_BROKER_TRANSPORT_OPTIONS = broker.transport_options()
CELERY_TASK_DEFAULT_QUEUE = broker.QUEUE
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True  # delete the message after its task, not before
CELERY_TASK_ACKS_ON_FAILURE_OR_TIMEOUT = False  # a failed task stays in the queue
CELERY_TASK_REJECT_ON_WORKER_LOST = True  # and so does one whose process died
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # no task waits behind a long one
CELERY_SQS_HEARTBEAT_STATUS = os.environ.get("STUDIO_STATUS")  # HOST:PORT of a status page
