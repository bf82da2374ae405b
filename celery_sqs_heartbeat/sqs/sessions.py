"""boto3 sessions that only the user's code can make."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import boto3

from celery_sqs_heartbeat.errors import ConfigurationError

SETTING = "sqs_heartbeat_session"

NewSession = Callable[[], boto3.Session]


def find_session_function(path: str) -> NewSession:
    """Return the function that a `module:function` names.

    Raises:
        ConfigurationError: There is none.
    """
    module, _, name = path.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            [
                f"{SETTING}={path!r}: can't be imported ({error}): name a function of a module "
                "that the worker finds"
            ]
        ) from error
    if not callable(function):
        raise ConfigurationError([f"{SETTING}={path!r}: is not a function"])
    return _checked(path, function)


def _checked(path: str, function: Callable[[], object]) -> NewSession:
    def new_session() -> boto3.Session:
        session = function()
        if not isinstance(session, boto3.Session):
            raise ConfigurationError(
                [f"{SETTING}={path!r}: returned {type(session).__name__}: return a boto3.Session"]
            )
        return session

    return new_session
