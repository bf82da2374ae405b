"""The settings for a queue or a task, and what they must fulfil together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from celery_sqs_heartbeat.common.values import is_whole
from celery_sqs_heartbeat.leases.lease import (
    DEFAULT_MAX_LEASE_SECONDS,
    DEFAULT_THRESHOLD_PART,
    SQS,
    LeaseTerms,
)
from celery_sqs_heartbeat.leases.policy import implied_calls_per_second
from celery_sqs_heartbeat.settings.release_delay import ReleaseDelay, read_release_delay, seconds

#: The longest sleep of the keeper by default, in seconds.
DEFAULT_INTERVAL = 1.0
#: How many messages one receive of a FIFO queue requests. With more than one, the messages that
#: wait are released whenever one ahead of them fails, and each receive counts toward
#: `maxReceiveCount`.
DEFAULT_FIFO_BATCH = 1
#: Batches a second that a worker can send to extend the leases of one queue: four calls in
#: flight of 0.1 s each. Within a region SQS answers several times faster.
CALLS_PER_SECOND = 40.0

#: Returns the value to use for one that a user has set, or raises a ValueError with its fault.
Reader = Callable[[Any], Any]


def setting(read: Reader, default: Any = None, *, shown: bool = True) -> Any:
    """Declare a setting, by how its value is read and its default.

    Args:
        shown: Whether logs and errors may show its value.
    """
    return field(default=default, repr=shown, metadata={"read": read})


def readers_of(declaring: type) -> dict[str, Reader]:
    """Return how to read each setting that a class declares."""
    return {f.name: f.metadata["read"] for f in fields(declaring) if f.metadata}


def obeying(is_right: Callable[[Any], bool], rule: str) -> Reader:
    """Return a reader of values for which a predicate is true. The rule says so in words."""

    def read(value: Any) -> Any:
        if not is_right(value):
            raise ValueError(f"must be {rule}")
        return value

    return read


def one_of(*names: str) -> Reader:
    """Return a reader of these names."""
    return obeying(names.__contains__, f"one of {', '.join(map(repr, names))}")


def positive(value: Any) -> float:
    """Return a number of seconds above 0, up to SQS's 12 hours."""
    return seconds(value, above=0)


def _whole(value: Any) -> float:
    if not is_whole(value):
        raise ValueError(f"must be a whole number of seconds, not {type(value).__name__}")
    return seconds(value, low=1)


def _is_batch(value: Any) -> bool:
    return is_whole(value) and 1 <= value <= SQS.most_received


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The settings for all queues, for one queue and for one task. Times in seconds.

    None means "not set here".
    """

    visibility_timeout: int | None = setting(_whole)
    threshold: float | None = setting(positive)
    max_lease: float | None = setting(positive)
    hold_eta: float | None = setting(seconds)
    release_delay: ReleaseDelay | None = setting(read_release_delay)  # noqa: RUF009 - a field
    on_lost: str | None = setting(one_of("warn", "revoke", "terminate"))
    fifo: str | None = setting(one_of("strict", "parallel"))
    fifo_batch: int | None = setting(
        obeying(_is_batch, f"a whole number of messages, 1 to {SQS.most_received}")
    )
    fifo_retry: str | None = setting(one_of("release", "send"))
    extend: bool | None = None

    def under(self, special: Rules | None) -> Rules:
        """Return these rules, overridden by those that `special` sets.

        A threshold belongs to the visibility timeout that it was set with. So a timeout in
        `special` without a threshold gets the default threshold.
        """
        if special is None:
            return self
        said = {f.name: v for f in fields(special) if (v := getattr(special, f.name)) is not None}
        if special.visibility_timeout is not None:
            said.setdefault("threshold", None)
        return replace(self, **said)

    def terms(self, own_timeout: int) -> LeaseTerms:
        """Return the terms of a lease on a queue with this visibility timeout of its own."""
        timeout = own_timeout if self.visibility_timeout is None else self.visibility_timeout
        threshold = timeout * DEFAULT_THRESHOLD_PART if self.threshold is None else self.threshold
        max_lease = DEFAULT_MAX_LEASE_SECONDS if self.max_lease is None else self.max_lease
        return LeaseTerms(
            visibility_timeout=timeout,
            threshold=threshold,
            max_lease=max(max_lease, timeout) if self.max_lease is None else max_lease,
            extend=self.extend is not False,
        )

    def fitting_terms(self, own_timeout: int, leases: int) -> LeaseTerms:
        """Return the terms, changed if they do not fit that timeout or need too many calls.

        For a queue whose visibility timeout changes while a worker consumes from it.
        `Settings.faults_with` says what fits.

        Args:
            leases: The most messages that the worker holds at once; 0 for no limit.
        """
        terms = self.terms(own_timeout)
        if any(load_faults(terms, leases)):
            terms = replace(terms, threshold=terms.visibility_timeout * DEFAULT_THRESHOLD_PART)
        terms = terms.with_room()
        return replace(terms, max_lease=max(terms.max_lease, terms.visibility_timeout))

    def faults(self, interval: float | None, leases: int) -> Iterator[str]:
        """Yield what is wrong whatever a queue's own timeout is; see `order_faults`."""
        if self.visibility_timeout is not None:
            terms = self.terms(self.visibility_timeout)
            yield from order_faults(terms, interval)
            yield from load_faults(terms, leases)
        elif self.threshold is not None:
            yield from _interval_faults(self.threshold, interval)


#: How each setting for one queue is read.
QUEUE_READERS = readers_of(Rules)
#: How each setting for one task is read.
TASK_READERS = {k: v for k, v in QUEUE_READERS.items() if k not in ("fifo", "fifo_batch")}


def order_faults(terms: LeaseTerms, interval: float | None) -> Iterator[str]:
    """Check 0 < interval < threshold < visibility timeout <= max_lease."""
    timeout, threshold = terms.visibility_timeout, terms.threshold
    if timeout < 1:
        yield (
            f"visibility_timeout={timeout} must be at least 1: received messages are visible "
            "again at once; set sqs_heartbeat_visibility_timeout, or the queue's own"
        )
        return
    if threshold >= timeout:
        yield (
            f"threshold={threshold:g} must be below visibility_timeout={timeout}: an extension is "
            "due when less than the threshold is left; lower the threshold, or raise the "
            "visibility timeout"
        )
    yield from _interval_faults(threshold, interval)
    if terms.max_lease < timeout:
        yield (
            f"max_lease={terms.max_lease:g} must be at least visibility_timeout={timeout}: the "
            "first receive alone lasts that long; raise max_lease, or lower the visibility timeout"
        )


def _interval_faults(threshold: float, interval: float | None) -> Iterator[str]:
    if interval is not None and interval >= threshold:
        yield (
            f"interval={interval:g} must be below threshold={threshold:g}: the keeper would sleep "
            "through the time it has for an extension; lower sqs_heartbeat_interval, or raise the "
            "threshold or the visibility timeout"
        )


def load_faults(terms: LeaseTerms, leases: int) -> Iterator[str]:
    """Check that the keeper can make the calls that the settings imply.

    Args:
        leases: The most messages that the worker holds at once; 0 for no limit.
    """
    if not leases or terms.threshold >= terms.visibility_timeout:
        return
    calls = implied_calls_per_second(leases, terms.visibility_timeout, terms.threshold)
    if calls > CALLS_PER_SECOND:
        yield (
            f"visibility_timeout={terms.visibility_timeout} with threshold={terms.threshold:g} "
            f"needs {calls:.0f} calls a second to extend {leases} messages, but one worker can "
            f"make at most {CALLS_PER_SECOND:g}: raise visibility_timeout, or lower "
            "worker_prefetch_multiplier or the concurrency"
        )
