"""Reads the settings from a Celery configuration and lists every fault at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from celery_sqs_heartbeat.common.values import closest, resembles
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings.address import is_loopback, parse_address
from celery_sqs_heartbeat.settings.checks import (
    GLOBAL_CHECKS,
    QUEUE_CHECKS,
    SECRETS,
    TASK_CHECKS,
    load_faults,
    order_faults,
)
from celery_sqs_heartbeat.settings.release_delay import read_release_delay
from celery_sqs_heartbeat.settings.rules import (
    DEFAULT_FIFO_WAITING,
    DEFAULT_KEEPER_TIMEOUT,
    PREFIX,
    Rules,
    Settings,
)

_SHORT_NAME = re.compile(r"\b(visibility_timeout|threshold|interval|max_lease)=")

#: Converts a value that has passed its check to the form that is used.
_READ: Mapping[str, Callable[[Any], Any]] = {"release_delay": read_release_delay}

Checks = Mapping[str, Callable[[Any], "str | None"]]


def read_settings(
    get: Callable[[str], Any],
    *,
    names: Iterable[str] = (),
    tasks: Mapping[str, Any] | None = None,
    leases: int = 0,
) -> Settings:
    """Read and check all settings.

    Args:
        get: Returns the value of a full setting name, or None where it is not set.
        names: Every configured name, to find misspelt ones.
        tasks: The `sqs_heartbeat` attribute of each task that has one, by task name.
        leases: The most messages that the worker holds at once; 0 for no limit.

    Raises:
        ConfigurationError: Lists every fault.
    """
    faults = list(_unknown(names))
    given = {name: value for name in GLOBAL_CHECKS if (value := get(PREFIX + name)) is not None}
    values = _checked(given, GLOBAL_CHECKS, PREFIX.__add__, faults)
    queues = get(PREFIX + "queues")
    settings = Settings(
        enabled=values.pop("enabled", False),
        fifo_waiting=values.pop("fifo_waiting", DEFAULT_FIFO_WAITING),
        flush_timeout=values.pop("flush_timeout", FLUSH_SECONDS),
        interval=values.pop("interval", None),
        journal=values.pop("journal", None),
        keeper_timeout=values.pop("keeper_timeout", DEFAULT_KEEPER_TIMEOUT),
        otel=values.pop("otel", False),
        session=values.pop("session", None),
        status=values.pop("status", None),
        status_token=values.pop("status_token", None),
        rules=Rules(**values),
        queues=_read_queues({} if queues is None else queues, faults),
        tasks=_read_tasks(tasks or {}, faults),
    )
    faults += [*_order_faults(settings, leases), *_status_faults(settings, given)]
    if faults:
        raise ConfigurationError(faults)
    return settings


def _unknown(names: Iterable[str]) -> Iterator[str]:
    known = (*GLOBAL_CHECKS, "queues")
    for name in sorted(set(names)):
        if name.lower().startswith(PREFIX):
            rest = name[len(PREFIX) :]
        elif not (rest := _behind_misspelt_prefix(name)):
            continue
        if name.removeprefix(PREFIX) not in known:
            close = closest(rest, known)
            listed = ", ".join(PREFIX + each for each in known)
            hint = (
                f"the settings are {listed}" if close is None else f"did you mean {PREFIX}{close}?"
            )
            yield f"{name}: there is no such setting; {hint}"


def _behind_misspelt_prefix(name: str) -> str:
    """Return the rest of a name after a misspelt common prefix, or an empty text."""
    stem = PREFIX.rstrip("_")
    if name.startswith(stem) and name != stem:
        return name.removeprefix(stem).lstrip("_")
    first, _, rest = name.partition("_")
    second, _, rest = rest.partition("_")
    return rest if resembles(f"{first}_{second}", stem) else ""


def _checked(
    given: Mapping[Any, Any], checks: Checks, label: Callable[[str], str], faults: list[str]
) -> dict[str, Any]:
    """Return the values that pass their checks; add the others to the faults."""
    values = {}
    for name, value in given.items():
        if name not in checks:
            close = closest(str(name), checks)
            hint = f"did you mean {close!r}?" if close else f"valid names are {', '.join(checks)}"
            faults.append(f"{label(str(name))}: can't be set here; {hint}")
        elif value is not None and (fault := checks[name](value)):
            shown = "..." if name in SECRETS else repr(value)
            faults.append(f"{label(name)}={shown}: {fault}")
        else:
            values[name] = _READ.get(name, _as_is)(value)
    return values


def _as_is(value: Any) -> Any:
    return value


def _item_of(where: str) -> Callable[[str], str]:
    # Not a format string, because names of queues may contain braces.
    return lambda name: f"{where}[{name!r}]"


def _read_queues(given: Any, faults: list[str]) -> dict[str, Rules]:
    if not isinstance(given, Mapping):
        faults.append(f"{PREFIX}queues={given!r}: must be a dict of dicts by queue name")
        return {}
    rules = {}
    for queue, values in given.items():
        where = f"{PREFIX}queues[{queue!r}]"
        if not isinstance(queue, str):
            faults.append(f"{where}: must be the name of a queue, not {type(queue).__name__}")
        elif isinstance(values, Mapping):
            checked = _checked(values, QUEUE_CHECKS, _item_of(where), faults)
            rules[queue] = Rules(**checked)
        else:
            faults.append(f"{where}={values!r}: must be a dict of settings for that queue")
    return rules


def _read_tasks(given: Mapping[str, Any], faults: list[str]) -> dict[str, Rules]:
    rules = {}
    for task, values in given.items():
        where = f"task {task!r}: sqs_heartbeat"
        if values is False:
            rules[task] = Rules(extend=False)
        elif isinstance(values, Mapping):
            checked = _checked(values, TASK_CHECKS, _item_of(where), faults)
            rules[task] = Rules(**checked)
        elif values is not True:
            faults.append(f"{where}={values!r}: must be a dict of settings, or False to opt out")
    return rules


def _status_faults(settings: Settings, given: Mapping[str, Any]) -> Iterator[str]:
    """Check that other machines cannot read the status page without a token.

    A wrong token is another fault, and does not count as missing.
    """
    if settings.status is None or "status_token" in given:
        return
    host, _ = parse_address(settings.status)
    if not is_loopback(host):
        yield (
            f"{PREFIX}status={settings.status!r}: other machines can reach it, so it needs "
            f"{PREFIX}status_token; or bind it to 127.0.0.1"
        )


def _with_full_names(essence: str) -> str:
    """Return a fault of the general rules with full setting names."""
    return _SHORT_NAME.sub(PREFIX + r"\1=", essence.removeprefix(": "))


def _order_faults(settings: Settings, leases: int) -> Iterator[str]:
    """Check the order of values that do not depend on a queue's own timeout."""
    scopes = {"sqs_heartbeat": settings.rules}
    scopes |= {f"{PREFIX}queues[{queue!r}]": settings.for_queue(queue) for queue in settings.queues}
    scopes |= {
        f"task {task!r}: sqs_heartbeat": settings.rules.under(rules)
        for task, rules in settings.tasks.items()
    }
    seen = set()
    for scope, rules in scopes.items():
        if rules.visibility_timeout is None:
            continue
        terms = rules.terms(rules.visibility_timeout)
        faults = [
            *order_faults(scope, terms, settings.interval),
            *load_faults(scope, terms, leases),
        ]
        for fault in faults:
            # A fault of the general rules appears in each scope that inherits them.
            essence = fault[len(scope) :]
            if essence not in seen:
                seen.add(essence)
                yield _with_full_names(essence) if rules is settings.rules else fault
    if settings.rules.visibility_timeout is None and settings.interval is not None:
        threshold = settings.rules.threshold
        if threshold is not None and settings.interval >= threshold:
            yield (
                f"{PREFIX}interval={settings.interval:g} must be below "
                f"{PREFIX}threshold={threshold:g}: the keeper would sleep through the time "
                "that it has for an extension"
            )
