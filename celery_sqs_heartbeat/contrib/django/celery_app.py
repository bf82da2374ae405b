"""Finds the Celery app of a Django project."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from celery import Celery, _state
from celery.app.utils import find_app
from django.conf import settings  # type: ignore[import-untyped]

from celery_sqs_heartbeat.cli.doctor.checks.broker import NO_APP, WRONG_APP
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
        app = _only_app()
        return _NO_APP if app is None else app
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


def _only_app() -> Any | None:
    """Return the current app, or the only one that there is.

    A thread other than the one that made the app, as `runserver` has it, has no current
    app. Celery would make one up, which knows nothing of the project.
    """
    if _state._tls.current_app is not None:
        return _state._tls.current_app
    made_up = _state.default_app if getattr(_state.default_app, "main", "") == "default" else None
    apps = [app for app in _state._get_active_apps() if app is not made_up]
    return apps[0] if len(apps) == 1 else None
