"""The settings of a worker: read from a Celery configuration, with every fault listed at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from celery_sqs_heartbeat.common.values import closest, is_path, is_whole, resembles
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings import address
from celery_sqs_heartbeat.settings.release_delay import seconds
from celery_sqs_heartbeat.settings.rules import (
    DEFAULT_INTERVAL,
    QUEUE_READERS,
    TASK_READERS,
    Reader,
    Rules,
    load_faults,
    obeying,
    order_faults,
    positive,
    readers_of,
    setting,
)

__all__ = ["NAMES", "PREFIX", "Rules", "Settings", "read_settings"]

#: The prefix of every setting's name.
PREFIX = "sqs_heartbeat_"
#: How long a worker continues without a keeper, in seconds: several tries, after growing pauses.
DEFAULT_KEEPER_TIMEOUT = 60.0
#: How many messages may wait behind others of their groups: for ten groups, the nine messages that
#: one receive brings besides the first.
DEFAULT_FIFO_WAITING = 90

_SHORT_NAME = re.compile(r"\b(visibility_timeout|threshold|interval|max_lease)=")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _valid(parse: Callable[[Any], object]) -> Reader:
    """Return a reader of values that can be parsed. They are parsed again where they are used."""

    def read(value: Any) -> Any:
        parse(value)
        return value

    return read


def _token(value: Any) -> Any:
    if fault := address.token_fault(value):
        raise ValueError(fault)
    return value


_FLAG = obeying(_is_flag, "True or False")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one worker, checked as far as possible without its queues.

    Attributes:
        fifo_waiting: How many messages may wait behind others of their groups.
        flush_timeout: How long a worker waits at its exit for the last confirmations, in seconds.
        journal: A folder, or an `s3://` prefix.
        keeper_timeout: How long a worker continues without a keeper that is ready, in seconds.
        session: A function that returns a boto3 session, as "module:function".
        status: The address of the status page, "HOST:PORT".
    """

    enabled: bool = setting(_FLAG, False)
    fifo_waiting: int = setting(
        obeying(_is_count, "a whole number of messages, 0 or more"), DEFAULT_FIFO_WAITING
    )
    flush_timeout: float = setting(seconds, FLUSH_SECONDS)
    interval: float | None = setting(positive)
    journal: str | None = setting(_valid(address.parse_target))
    keeper_timeout: float = setting(positive, DEFAULT_KEEPER_TIMEOUT)
    otel: bool = setting(_FLAG, False)
    session: str | None = setting(obeying(is_path, "'module:function', as 'proj.aws:new_session'"))
    status: str | None = setting(_valid(address.parse_address))
    status_token: str | None = setting(_token, shown=False)
    rules: Rules = field(default_factory=Rules)
    queues: Mapping[str, Rules] = field(default_factory=dict)
    tasks: Mapping[str, Rules] = field(default_factory=dict)

    def for_queue(self, queue: str) -> Rules:
        """Return the rules of a queue, by the name that Celery uses."""
        return self.rules.under(self.queues.get(queue))

    def for_task(self, queue: str, task: str | None) -> Rules:
        """Return the rules of a task's messages on a queue."""
        return self.for_queue(queue).under(self.tasks.get(task or ""))

    def place_of(self, name: str, queue: str, task: str | None) -> str:
        """Return the place of the setting that applies to a task's messages on a queue."""
        if getattr(self.tasks.get(task or ""), name, None) is not None:
            return f"task {task!r}: sqs_heartbeat[{name!r}]"
        if getattr(self.queues.get(queue), name, None) is not None:
            return f"{PREFIX}queues[{queue!r}][{name!r}]"
        return PREFIX + name

    def may_terminate(self) -> bool:
        """Return whether any setting stops tasks whose lease was lost."""
        scopes = (self.rules, *self.queues.values(), *self.tasks.values())
        return any(scope.on_lost == "terminate" for scope in scopes)

    def longest_sleep(self) -> float:
        """Return the keeper's interval, in seconds: less than 1 if a threshold is small."""
        if self.interval is not None:
            return self.interval
        scopes = (self.rules, *map(self.for_queue, self.queues))
        return min(DEFAULT_INTERVAL, *(scope.terms(30).threshold / 2 for scope in scopes))

    def keeps_order(self, queue: str) -> bool:
        """Return whether the messages of each group of a queue run one after the other."""
        return is_fifo(queue) and self.for_queue(queue).fifo != "parallel"

    def releases_retries(self, queue: str, task: str | None) -> bool:
        """Return whether a retry of a task from this queue releases its message."""
        return self.keeps_order(queue) and self.for_task(queue, task).fifo_retry != "send"

    def leases_on(self, queue: str, leases: int) -> int:
        """Return how many messages of a queue a worker may hold.

        On a FIFO queue, the messages that wait for another of their group are added.

        Args:
            leases: The most messages that it holds otherwise; 0 for no limit.
        """
        return leases + self.fifo_waiting if leases and self.keeps_order(queue) else leases

    def faults_with(self, queue: str, own_timeout: int, leases: int) -> list[str]:
        """Return the faults of the settings on a queue whose own visibility timeout is known.

        Args:
            leases: The most messages that the worker holds at once; 0 for no limit.
        """
        terms = self.for_queue(queue).terms(own_timeout)
        calls = load_faults(terms, self.leases_on(queue, leases))
        of_queue = [*order_faults(terms, self.interval), *calls]
        of_tasks = {
            f"task {task!r} on queue {queue!r}": order_faults(
                self.for_task(queue, task).terms(own_timeout), self.interval
            )
            for task in self.tasks
        }
        return [f"queue {queue!r}: {fault}" for fault in of_queue] + [
            *_not_inherited(of_tasks, of_queue)
        ]


_SETTINGS = readers_of(Settings) | QUEUE_READERS
_SECRETS = {each.name for each in fields(Settings) if not each.repr}
#: The names of all settings, without the prefix.
NAMES = (*_SETTINGS, "queues")


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
    given = {name: value for name in _SETTINGS if (value := get(PREFIX + name)) is not None}
    values = _read(given, _SETTINGS, PREFIX.__add__, faults)
    queues = get(PREFIX + "queues")
    settings = Settings(
        rules=Rules(**{name: values.pop(name) for name in QUEUE_READERS if name in values}),
        queues=_read_queues({} if queues is None else queues, faults),
        tasks=_read_tasks(tasks or {}, faults),
        **values,
    )
    faults += [*_order_faults(settings, leases), *_status_faults(settings, given)]
    if faults:
        raise ConfigurationError(faults)
    return settings


def _unknown(names: Iterable[str]) -> Iterator[str]:
    for name in sorted(set(names)):
        if name.lower().startswith(PREFIX):
            rest = name[len(PREFIX) :]
        elif not (rest := _behind_misspelt_prefix(name)):
            continue
        if name.removeprefix(PREFIX) not in NAMES:
            close = closest(rest, NAMES)
            listed = ", ".join(PREFIX + each for each in NAMES)
            hint = f"did you mean {PREFIX}{close}?" if close else f"the settings are {listed}"
            yield f"{name}: there is no such setting; {hint}"


def _behind_misspelt_prefix(name: str) -> str:
    """Return the rest of a name after a misspelt common prefix, or an empty text."""
    stem = PREFIX.rstrip("_")
    if name.startswith(stem) and name != stem:
        return name.removeprefix(stem).lstrip("_")
    first, _, rest = name.partition("_")
    second, _, rest = rest.partition("_")
    return rest if resembles(f"{first}_{second}", stem) else ""


def _read(
    given: Mapping[Any, Any],
    readers: Mapping[str, Reader],
    label: Callable[[str], str],
    faults: list[str],
) -> dict[str, Any]:
    """Return the values that are right; add the faults of the others."""
    values = {}
    for name, value in given.items():
        if name not in readers:
            close = closest(str(name), readers)
            hint = f"did you mean {close!r}?" if close else f"valid names are {', '.join(readers)}"
            faults.append(f"{label(str(name))}: can't be set here; {hint}")
            continue
        try:
            values[name] = None if value is None else readers[name](value)
        except ValueError as error:
            shown = "..." if name in _SECRETS else repr(value)
            faults.append(f"{label(name)}={shown}: {error}")
    return values


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
            rules[queue] = Rules(**_read(values, QUEUE_READERS, _item_of(where), faults))
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
            rules[task] = Rules(**_read(values, TASK_READERS, _item_of(where), faults))
        elif values is not True:
            faults.append(f"{where}={values!r}: must be a dict of settings, or False to opt out")
    return rules


def _status_faults(settings: Settings, given: Mapping[str, Any]) -> Iterator[str]:
    """Check that other machines cannot read the status page without a token.

    A wrong token is another fault, and does not count as missing.
    """
    if settings.status is None or "status_token" in given:
        return
    host, _ = address.parse_address(settings.status)
    if not address.is_loopback(host):
        yield (
            f"{PREFIX}status={settings.status!r}: other machines can reach it, so it needs "
            f"{PREFIX}status_token; or bind it to 127.0.0.1"
        )


def _order_faults(settings: Settings, leases: int) -> Iterator[str]:
    """Check the order of values that do not depend on a queue's own timeout."""
    general = [*settings.rules.faults(settings.interval, leases)]
    scopes = {f"{PREFIX}queues[{queue!r}]": settings.for_queue(queue) for queue in settings.queues}
    scopes |= {
        f"task {task!r}: sqs_heartbeat": settings.rules.under(rules)
        for task, rules in settings.tasks.items()
    }
    special = {scope: rules.faults(settings.interval, leases) for scope, rules in scopes.items()}
    for fault in general:
        yield _SHORT_NAME.sub(PREFIX + r"\1=", fault)
    yield from _not_inherited(special, general)


def _not_inherited(faults: Mapping[str, Iterable[str]], inherited: list[str]) -> Iterator[str]:
    """Yield the faults of each scope, without those that are reported for all."""
    for scope, found in faults.items():
        yield from (f"{scope}: {fault}" for fault in found if fault not in inherited)
