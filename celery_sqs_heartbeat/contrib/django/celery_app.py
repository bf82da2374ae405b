"""Finds the Celery app of a Django project."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from celery import Celery
from celery.app import app_or_default
from celery.app.utils import find_app
from django.apps import apps  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]

from celery_sqs_heartbeat.cli.app.app_contents import is_made_up
from celery_sqs_heartbeat.cli.doctor.checks.broker import NO_APP, SEVERAL_APPS, WRONG_APP
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding

#: Where the app is, as "proj.celery:app". Not named after the heartbeat's own settings:
#: those of the Celery namespace are checked, and this one would be unknown there.
SETTING = "HEARTBEAT_SQS_APP"
_NO_APP = replace(
    NO_APP.found(),
    fix=f'import the app in the __init__.py of your project, or set {SETTING} = "proj.celery:app"',
)


def find_celery_app() -> Any | Finding:
    """Return the project's Celery app, or what was found instead."""
    path = getattr(settings, SETTING, None)
    if path is None:
        return _unnamed_app()
    if (fault := _path_fault(path)) is not None:
        return WRONG_APP.found(setting=SETTING, value=f"{path!r} ({fault})")
    return find_app(path)


def _path_fault(path: object) -> str | None:
    """Return why a path leads to no Celery app, or None."""
    if not isinstance(path, str) or not path:
        return "it must be a text" if path else "it is empty"
    module, _, name = path.partition(":")
    try:
        if name and not hasattr(import_module(module), name):
            return f"the module {module} has no {name!r}"
        app = find_app(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if isinstance(app, Celery) else f"it is of type {type(app).__name__}"


def current_celery_app() -> Any | None:
    """Return the app that is current in this thread, or None.

    A thread other than the one that made the app has none: Celery makes one up there, which knows
    nothing of the project.
    """
    app = app_or_default()
    return None if is_made_up(app) else app


def _unnamed_app() -> Any | Finding:
    """Return the app that no setting names. It must be the same at Django's start and now."""
    at_start = apps.get_app_config("celery_sqs_heartbeat").celery_app
    now = current_celery_app()
    found = at_start if now is None else now
    if found is None:
        return _NO_APP
    if at_start is not None and at_start is not found:
        both = f"{at_start.main!r} was current at Django's start, {found.main!r} is now"
        return SEVERAL_APPS.found(setting=SETTING, value=f"None ({both})")
    return found
