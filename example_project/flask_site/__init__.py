"""The Flask site: `flask --app flask_site run`."""

from __future__ import annotations

import os

from celery_sqs_heartbeat.contrib.flask import celery_init_app
from flask import Flask

from flask_site import views
from studio import broker


def create_app() -> Flask:
    """Return the site, with its Celery app in `extensions["celery"]`."""
    app = Flask(__name__)
    app.config.update(
        CELERY={
            "broker_url": broker.URL,
            "broker_transport_options": broker.transport_options(),
            "task_default_queue": broker.QUEUE,
            "task_ignore_result": True,
            "task_acks_late": True,  # delete the message after its task, not before
            "task_acks_on_failure_or_timeout": False,  # a failed task stays in the queue
            "task_reject_on_worker_lost": True,  # and so does one whose process died
            "worker_prefetch_multiplier": 1,  # no task waits behind a long one
            "sqs_heartbeat_status": os.environ.get("STUDIO_STATUS"),  # HOST:PORT of a status page
        },
    )
    app.register_blueprint(views.site)
    celery_init_app(app)
    return app
