"""The values for a queue or a task: a task's setting overrides its queue's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from celery_sqs_heartbeat.leases.lease import (
    DEFAULT_MAX_LEASE_SECONDS,
    DEFAULT_THRESHOLD_PART,
    LeaseTerms,
)
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings.checks import load_faults, order_faults
from celery_sqs_heartbeat.settings.release_delay import ReleaseDelay, choose_delay
from celery_sqs_heartbeat.settings.release_policies import Failure

#: The prefix of every setting's name.
PREFIX = "sqs_heartbeat_"
#: The longest sleep of the keeper by default, in seconds.
DEFAULT_INTERVAL = 1.0
#: How long a worker continues without a keeper, in seconds: several tries, after growing pauses.
DEFAULT_KEEPER_TIMEOUT = 60.0
#: How many messages one receive of a FIFO queue requests. With more than one, the messages that
#: wait are released whenever one ahead of them fails, and each receive counts toward
#: `maxReceiveCount`.
DEFAULT_FIFO_BATCH = 1
#: How many messages may wait behind others of their groups: for ten groups, the nine messages that
#: one receive brings besides the first.
DEFAULT_FIFO_WAITING = 90


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The settings for all queues, for one queue and for one task. Times in seconds.

    None means "not set here".
    """

    visibility_timeout: int | None = None
    threshold: float | None = None
    max_lease: float | None = None
    hold_eta: float | None = None
    release_delay: ReleaseDelay | None = None
    on_lost: str | None = None
    fifo: str | None = None
    fifo_batch: int | None = None
    fifo_retry: str | None = None
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
        if any(load_faults("", terms, leases)):
            terms = replace(terms, threshold=terms.visibility_timeout * DEFAULT_THRESHOLD_PART)
        terms = terms.with_room()
        return replace(terms, max_lease=max(terms.max_lease, terms.visibility_timeout))

    def delay_after(self, failure: Failure) -> float | None:
        """Return the release delay after a failure, in seconds; None to keep the message hidden.

        Raises:
            UnusableDelay: The configured function returned no seconds.
            Exception: Any error that the configured function raised.
        """
        return choose_delay(self.release_delay, failure)


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

    enabled: bool = False
    fifo_waiting: int = DEFAULT_FIFO_WAITING
    flush_timeout: float = FLUSH_SECONDS
    interval: float | None = None
    journal: str | None = None
    keeper_timeout: float = DEFAULT_KEEPER_TIMEOUT
    otel: bool = False
    session: str | None = None
    status: str | None = None
    status_token: str | None = field(default=None, repr=False)
    rules: Rules = Rules()
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
        if _sets(self.tasks.get(task or ""), name):
            return f"task {task!r}: sqs_heartbeat[{name!r}]"
        if _sets(self.queues.get(queue), name):
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
        scope = f"queue {queue!r}"
        leases = self.leases_on(queue, leases)
        faults = [*order_faults(scope, terms, self.interval), *load_faults(scope, terms, leases)]
        inherited = {fault.removeprefix(scope) for fault in faults}
        for task in self.tasks:
            terms = self.for_task(queue, task).terms(own_timeout)
            of_task = f"task {task!r} on {scope}"
            found = order_faults(of_task, terms, self.interval)
            faults += (fault for fault in found if fault.removeprefix(of_task) not in inherited)
        return faults


def _sets(rules: Rules | None, name: str) -> bool:
    return rules is not None and getattr(rules, name) is not None
