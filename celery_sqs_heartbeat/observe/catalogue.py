"""Defines every metric once, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

#: Common beginning of every name.
PREFIX = "sqs_heartbeat"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        kind: "counter", "gauge" or "histogram".
        name: The name without prefix, unit and the suffix that a system adds.
        unit: "seconds", "bytes", or empty.
        buckets: Upper bounds of a histogram's buckets.
        known: All values of a counter's last label, if they are known in advance.
    """

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: Sequence[float] = ()
    known: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """Its full name in Prometheus."""
        suffix = "total" if self.kind == "counter" else ""
        return "_".join(filter(None, (PREFIX, self.name, self.unit, suffix)))

    @property
    def zeros(self) -> Sequence[tuple[str, ...]]:
        """Labels of a counter, after the queue, for which each queue starts at 0.

        Prometheus does not see a step from no series to 1 as an increase.
        """
        if self.kind == "counter" and self.labels == _QUEUE:
            return [()]
        return [(value,) for value in self.known]


_counter = partial(Metric, "counter")
_gauge = partial(Metric, "gauge")
_age = partial(Metric, "gauge", unit="seconds")
_histogram = partial(Metric, "histogram", unit="seconds")
_QUEUE = ("queue",)
_CAUSE = ("queue", "cause")
_ACTION = ("queue", "action")
_OUTCOME = ("queue", "action", "outcome")

#: Counted from events.
COUNTED = (
    _counter(
        "messages_received",
        "Messages received: new, redelivered (the lease continues) or finished (deleted again).",
        ("queue", "kind"),
        known=("new", "redelivered", "finished"),
    ),
    _counter("tasks_started", "Tasks that the pool started.", _QUEUE),
    _counter("extensions", "Lease extensions that SQS confirmed.", _QUEUE),
    _counter(
        "calls", "Batch calls, each counted once, by the outcome of its first message.", _OUTCOME
    ),
    _counter("call_entries", "Messages in batch calls, each by its own outcome.", _OUTCOME),
    _counter("releases", "Messages that were made visible again, by cause.", _CAUSE),
    _counter(
        "lapses", "Messages left to become visible when their timeout ends, by cause.", _CAUSE
    ),
    _counter(
        "group_stops",
        "Message groups that stopped because their first message was released, by cause.",
        _CAUSE,
    ),
    _counter("deletes", "Deletes that SQS confirmed.", _QUEUE),
    _counter(
        "deletes_abandoned",
        "Deletes that SQS refused for good. The message is deleted when it is received again.",
        _QUEUE,
    ),
    _counter(
        "losses",
        "Leases that expired, were lost or were capped before their tasks ended. A lease that "
        "expires and is lost after that counts as both.",
        _CAUSE,
        known=("expired", "lost", "capped"),
    ),
    _counter(
        "failed_tries",
        "Extensions and deletes that failed and will be repeated.",
        _ACTION,
        known=("extend", "delete"),
    ),
    _counter(
        "caps_near", "Leases that will soon reach the longest time that they may last.", _QUEUE
    ),
    _counter(
        "permission_denials",
        "How often SQS began to refuse an action because a permission is missing.",
        _ACTION,
        known=("extend", "release", "delete"),
    ),
    _histogram(
        "extension_slack",
        "Time left of a lease when SQS confirmed its extension; 0 if it had expired.",
        _QUEUE,
        # From a short hiccup to SQS's longest timeouts.
        buckets=(0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0),
    ),
    _histogram(
        "call_duration",
        "Time from planning a call to its answer.",
        _ACTION,
        buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    ),
    _histogram(
        "lease_duration",
        "How long leases lasted that ended with a delete, a release or a lapse.",
        ("queue", "end"),
        # From a very short task to SQS's 12 hours.
        buckets=(0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0),
    ),
)
#: Read from the keeper and its journal at each scrape.
READ = (
    _gauge("in_flight_messages", "Messages that the worker holds and SQS hides.", _QUEUE),
    _gauge("leases", "Leases by status.", ("queue", "status")),
    _gauge("pending_deletes", "Deletes that SQS has not confirmed yet.", _QUEUE),
    _gauge("pending_releases", "Releases that SQS has not confirmed yet.", _QUEUE),
    _age("oldest_lease_age", "Age of the oldest lease.", _QUEUE),
    _gauge(
        "message_groups",
        "Message groups of a FIFO queue in strict order that the worker holds messages of.",
        _QUEUE,
    ),
    _gauge("messages_behind", "Messages that wait behind another message of their group.", _QUEUE),
    _gauge(
        "stopped_groups",
        "Message groups whose first message this worker released and SQS still hides, as far as "
        "this worker knows.",
        _QUEUE,
    ),
    _gauge("keeper_alive", "1 while the thread that extends leases runs in the keeper's process."),
    _gauge("keeper_late", "1 while the keeper's next tick is so late that leases may expire."),
    _age(
        "keeper_last_tick_age", "Time since the keeper's last tick began: normally about a second."
    ),
    _counter("keeper_replaced", "How often the keeper's process was replaced."),
    _counter("keeper_standstills", "How often nothing in the keeper's process ran for a while."),
    _age(
        "worker_loop_age",
        "Time since the worker's event loop last turned: normally about a second, and 0 while the "
        "worker starts or shuts down.",
    ),
    _gauge(
        "worker_stalled",
        "1 while the worker's event loop is stalled: it neither starts tasks nor settles messages.",
    ),
    _age(
        "last_answered_poll_age",
        "Time since SQS last answered a poll, with or without messages. It also grows while the "
        "worker is full.",
        _QUEUE,
    ),
    _counter(
        "polls_unanswered",
        "Polls that failed: SQS could not be reached, refused them, or did not answer in time.",
        _QUEUE,
    ),
    _counter("journal_lines", "Lines written to the worker's journal."),
    _counter(
        "journal_dropped_lines",
        "Lines that the journal lost: it could not write them in time, or could not keep them "
        "until they were on S3.",
    ),
    _gauge(
        "journal_spooled", "Bytes of closed segments that wait for the upload to S3.", unit="bytes"
    ),
)
METRICS = (*COUNTED, *READ)
