"""A Flask extension that makes the Celery app, with the heartbeat installed."""

from __future__ import annotations

from typing import Any

from celery import Celery, Task
from flask import Flask

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.worker.install import install


class SqsHeartbeat:
    """Gives Flask apps a Celery app whose workers keep SQS messages leased.

    `SqsHeartbeat(app)`, or `init_app` in an application factory. It keeps nothing, so one
    may serve several apps.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Install the heartbeat in the app's Celery app, and make that where there is none.

        Raises:
            ConfigurationError: As `celery_init_app`.
        """
        existing = app.extensions.get("celery")
        if isinstance(existing, Celery):
            install(existing)
        else:
            celery_init_app(app)


def celery_init_app(app: Flask) -> Celery:
    """Make a Celery app from `app.config["CELERY"]`, and return it with the heartbeat.

    Its tasks run in the Flask app's context. It is `app.extensions["celery"]` from then on,
    and the one that `shared_task` belongs to.

    Raises:
        ConfigurationError: There is no such configuration.
    """
    config = app.config.get("CELERY")
    if not isinstance(config, dict):
        raise ConfigurationError(
            [
                f'app.config["CELERY"] is of type {type(config).__name__}: must be a dict of '
                "Celery's settings, with broker_url among them; set it before init_app"
            ]
        )

    class ContextTask(Task):
        """A task that may use the Flask app as a request may."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with app.app_context():
                return self.run(*args, **kwargs)

    celery_app = Celery(app.name, task_cls=ContextTask)
    celery_app.config_from_object(config)
    celery_app.set_default()
    app.extensions["celery"] = celery_app
    return install(celery_app)
