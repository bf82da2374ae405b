"""Finds the Celery app of a Django project."""

from __future__ import annotations

from typing import Any

from celery import _state
from celery.app.utils import find_app
from django.conf import settings  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]

#: Where the app is, as "proj.celery:app". Not named after the heartbeat's own settings:
#: those of the Celery namespace are checked, and this one would be unknown there.
SETTING = "HEARTBEAT_SQS_APP"


def find_celery_app() -> Any | None:
    """Return the project's Celery app, or None where none is to be found.

    Raises:
        ImproperlyConfigured: The setting names none.
    """
    path = getattr(settings, SETTING, None)
    if path is None:
        return _only_app()
    try:
        return find_app(path)
    except (ImportError, AttributeError) as error:
        raise ImproperlyConfigured(
            f"{SETTING}={path!r}: there is no Celery app ({error}); "
            'set it to the module and the name of yours, as "proj.celery:app"'
        ) from error


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
