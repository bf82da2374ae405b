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

from celery_sqs_heartbeat.cli.app import is_made_up
from celery_sqs_heartbeat.cli.examination import FINDINGS
from celery_sqs_heartbeat.cli.findings import Finding

#: The path of the app, such as "proj.celery:app". The name does not follow the heartbeat's
#: settings, because those in the Celery namespace are checked and this one would be unknown there.
SETTING = "HEARTBEAT_SQS_APP"
_NO_APP = replace(
    FINDINGS["E007"],
    fix=f'Import the app in the __init__.py of your project, or set {SETTING} = "proj.celery:app".',
)


def find_celery_app() -> Any | Finding:
    """Return the project's Celery app, or a finding that says why there is none."""
    path = getattr(settings, SETTING, None)
    if path is None:
        return _unnamed_app()
    if (fault := _path_fault(path)) is not None:
        return FINDINGS["E014"].at(SETTING, f"{path!r} ({fault})")
    return find_app(path)


def _path_fault(path: object) -> str | None:
    """Return why a path does not name a Celery app, or None."""
    if not isinstance(path, str) or not path:
        return "it must be a string" if path else "it is empty"
    module, _, name = path.partition(":")
    try:
        if name and not hasattr(import_module(module), name):
            return f"the module {module} has no {name!r}"
        app = find_app(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if isinstance(app, Celery) else f"it is of type {type(app).__name__}"


def current_celery_app() -> Any | None:
    """Return the current app of this thread, or None.

    Only the thread that created the app has it as its current app. In other threads Celery creates
    a default app, which knows nothing about the project.
    """
    app = app_or_default()
    return None if is_made_up(app) else app


def _unnamed_app() -> Any | Finding:
    """Return the app if no setting names one. It must be the same at Django's start and now."""
    at_start = apps.get_app_config("celery_sqs_heartbeat").celery_app
    now = current_celery_app()
    found = at_start if now is None else now
    if found is None:
        return _NO_APP
    if at_start is not None and at_start is not found:
        both = f"{at_start.main!r} was current at Django's start, {found.main!r} is now"
        return FINDINGS["E015"].at(SETTING, f"None ({both})")
    return found
