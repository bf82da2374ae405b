"""The Celery app of the Flask site: `celery -A flask_site.worker worker --heartbeat-sqs`."""

from flask_site import create_app

celery = create_app().extensions["celery"]
