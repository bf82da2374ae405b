"""boto3 sessions that the user's own function makes."""

from __future__ import annotations

from collections.abc import Callable

import boto3

from celery_sqs_heartbeat.common.values import NotImportable, import_named
from celery_sqs_heartbeat.errors import ConfigurationError

SETTING = "sqs_heartbeat_session"

NewSession = Callable[[], boto3.Session]


def find_session_function(path: str) -> NewSession:
    """Return the function that a `module:function` path names.

    The returned function raises a `ConfigurationError` if it makes no session.

    Raises:
        ConfigurationError: There is no such function.
    """
    try:
        function = import_named(path)
    except NotImportable as error:
        raise ConfigurationError([f"{SETTING}={path!r}: {error}"]) from error
    if not callable(function):
        raise ConfigurationError(
            [f"{SETTING}={path!r}: is not a function: name one that returns a boto3.Session"]
        )
    return _checked(f"{SETTING}={path!r}", function)


def try_session_function(path: str) -> NewSession:
    """Return the function that a `module:function` path names, after a trial call.

    The call finds a function that makes no session at startup, not when the first message waits.

    Raises:
        ConfigurationError: There is no such function, or it makes no session.
    """
    new_session = find_session_function(path)
    new_session()
    return new_session


def _checked(given: str, function: Callable[[], object]) -> NewSession:
    def new_session() -> boto3.Session:
        try:
            session = function()
        except Exception as error:
            raise ConfigurationError(
                [f"{given}: failed ({error!r}): it must return a boto3.Session"]
            ) from error
        if not isinstance(session, boto3.Session):
            raise ConfigurationError(
                [f"{given}: returned {type(session).__name__}: return a boto3.Session"]
            )
        return session

    return new_session
