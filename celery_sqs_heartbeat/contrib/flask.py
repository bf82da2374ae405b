"""A Flask extension that creates a Celery app with the heartbeat installed."""

from __future__ import annotations

from typing import Any

from celery import Celery, Task
from flask import Flask

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.worker.step import install


class SqsHeartbeat:
    """Gives Flask apps a Celery app whose workers keep SQS messages leased.

    Use `SqsHeartbeat(app)`, or `init_app` in an application factory. An instance has no state, so
    it may serve several apps.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Install the heartbeat in the app's Celery app. Create the Celery app if there is none.

        Raises:
            ConfigurationError: See `celery_init_app`.
        """
        existing = app.extensions.get("celery")
        if isinstance(existing, Celery):
            install(existing)
        else:
            celery_init_app(app)


def celery_init_app(app: Flask) -> Celery:
    """Create a Celery app from `app.config["CELERY"]`, install the heartbeat and return the app.

    Its tasks run in the Flask app's context. It becomes `app.extensions["celery"]` and the default
    app, to which tasks made with `shared_task` belong.

    Raises:
        ConfigurationError: `app.config["CELERY"]` is missing or not a dict.
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
        """A task that runs in the Flask app's context."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with app.app_context():
                return self.run(*args, **kwargs)

    celery_app = Celery(app.name, task_cls=ContextTask)
    celery_app.config_from_object(config)
    celery_app.set_default()
    app.extensions["celery"] = celery_app
    return install(celery_app)
