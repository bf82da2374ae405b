"""Checks `broker_transport_options` and the session function before kombu or boto3 use them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
from botocore.config import Config

from celery_sqs_heartbeat.common.values import NotImportable, import_named, is_number, is_whole
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.leases.message import is_fifo

#: The entries of kombu's `client-config` that limit a call's duration, in seconds.
TIMEOUTS = ("connect_timeout", "read_timeout")

#: A check for each option, and the same rule in words.
_Rules = Mapping[str, tuple[Callable[[Any], bool], str]]

_NAME = "broker_transport_options"
_CLIENT = "client-config"

SETTING = "sqs_heartbeat_session"
NewSession = Callable[[], boto3.Session]


def option_faults(options: object) -> Iterator[str]:
    """Yield a sentence for each transport option with which a worker would fail.

    Missing options and options without a rule here are left to kombu. So are options that do not
    matter: those of a role if there is none, and those of new queues (`creation_faults`).

    Args:
        options: The value of `broker_transport_options`.
    """
    if not isinstance(options, Mapping):
        yield f"{_NAME}={options!r}: must be a dict of options"
        return
    for name in options:
        if not isinstance(name, str):
            yield f"{_NAME}[{name!r}]: must be the name of an option, not {type(name).__name__}"
    yield from _broken(_RULES, options)
    if options.get("sts_role_arn"):
        yield from _broken(_ROLE_RULES, options)
    yield from _client_faults(options.get(_CLIENT) or {})
    yield from _predefined_faults(options.get("predefined_queues") or {})


def creation_faults(options: object) -> Iterator[str]:
    """Yield a sentence for each transport option with which kombu can't create a queue."""
    if isinstance(options, Mapping):
        yield from _broken(_CREATION_RULES, options)


def _broken(rules: _Rules, options: Mapping[Any, Any]) -> Iterator[str]:
    for name, (is_right, rule) in rules.items():
        if name in options and not is_right(value := options[name]):
            yield f"{_NAME}[{name!r}]={value!r}: must be {rule}"


def _client_faults(given: object) -> Iterator[str]:
    where = f"{_NAME}[{_CLIENT!r}]"
    if not isinstance(given, Mapping):
        yield f"{where}={given!r}: must be a dict of arguments for botocore.config.Config"
        return
    wrong = [name for name in TIMEOUTS if not _is_timeout(given.get(name))]
    for name in wrong:
        yield (
            f"{where}[{name!r}]={given[name]!r}: must be a number of seconds above 0, or None "
            "for no timeout"
        )
    try:
        Config(**{name: value for name, value in given.items() if name not in wrong})
    except Exception as error:
        # The error does not quote the value, which may contain a proxy's password.
        yield f"{where}: botocore does not accept it ({error}): correct or remove that argument"


def _predefined_faults(given: object) -> Iterator[str]:
    where = f"{_NAME}['predefined_queues']"
    if not isinstance(given, Mapping):
        yield f"{where}: must be a dict of dicts by queue name, each with a 'url'"
        return
    for queue, values in given.items():
        url = values.get("url") if isinstance(values, Mapping) else None
        # The error does not quote the value, which may contain keys.
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            yield f"{where}[{queue!r}]: must be a dict with the queue's 'url', such as https://..."
        elif is_fifo(url) is not is_fifo(str(queue)):
            yield (
                f"{where}[{queue!r}]: its name and its url must both end in .fifo, or neither: "
                "kombu recognizes FIFO queues by it"
            )


def _is_wait(value: object) -> bool:
    return is_whole(value) and 0 <= value <= SQS.longest_wait


def _is_timeout(value: Any) -> bool:
    return value is None or (is_number(value) and 0 < value < math.inf)


def _is_pause(value: Any) -> bool:
    return value is None or (is_number(value) and value >= 0)


def _is_created_timeout(value: Any) -> bool:
    """Return whether kombu can convert the value to whole seconds, or uses its default for it."""
    if value is None or value == "":
        return True
    try:
        return 0 <= int(float(value)) <= SQS.longest_timeout
    except (TypeError, ValueError, OverflowError):
        return False


def _is_region(value: object) -> bool:
    # botocore's rule for a part of a host name.
    return value is None or (isinstance(value, str) and bool(re.fullmatch(r"[\w-]{1,63}", value)))


def _is_role(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.startswith("arn:"))


def _is_lifetime(value: Any) -> bool:
    return is_number(value) and 0 < value <= SQS.longest_timeout


def _is_attributes(value: object) -> bool:
    return value is None or (
        isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
    )


_RULES: _Rules = {
    "wait_time_seconds": (_is_wait, f"a whole number of seconds from 0 to {SQS.longest_wait}"),
    "polling_interval": (_is_pause, "a number of seconds, 0 or more"),
    "is_secure": (lambda value: value is None or isinstance(value, bool), "True or False"),
    "queue_name_prefix": (lambda value: isinstance(value, str), "a string"),
    "region": (_is_region, "the name of a region, such as 'eu-west-1'"),
    "sts_role_arn": (
        _is_role,
        "the ARN of a role, such as 'arn:aws:iam::123456789012:role/worker'",
    ),
}
_ROLE_RULES: _Rules = {
    "sts_token_timeout": (_is_lifetime, "a number of seconds above 0"),
    "sts_token_buffer_time": (_is_pause, "a number of seconds, 0 or more"),
}
_CREATION_RULES: _Rules = {
    "visibility_timeout": (
        _is_created_timeout,
        f"a whole number of seconds from 0 to {SQS.longest_timeout}",
    ),
    "sqs-creation-attributes": (_is_attributes, "a dict with a string for each attribute's name"),
}


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
