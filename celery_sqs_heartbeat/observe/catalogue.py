"""Defines every metric once, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Common beginning of every name.
PREFIX = "sqs_heartbeat"
#: Remaining lease times, in seconds: from a short hiccup to SQS's longest timeouts.
LONG_BUCKETS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
#: Call durations, in seconds.
CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Ages at which leases end, in seconds: from a very short task to SQS's 12 hours.
AGE_BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: The name without prefix, unit and the suffix that a system adds.
        kind: "counter", "gauge" or "histogram".
        unit: "seconds", "bytes", or empty.
        buckets: Upper bounds of a histogram's buckets.
        zeros: Labels of a counter, after the queue, for which each queue starts at 0.
            Prometheus does not see a step from no series to 1 as an increase.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: Sequence[float] = ()
    zeros: Sequence[tuple[str, ...]] = ()

    @property
    def family(self) -> str:
        """Its name in Prometheus, without the `_total` of a counter."""
        return "_".join(filter(None, (PREFIX, self.name, self.unit)))

    @property
    def series(self) -> str:
        """Its full name in Prometheus, as documented."""
        return f"{self.family}_total" if self.kind == "counter" else self.family


_QUEUE = ("queue",)
_ALONE = ((),)
_SECONDS = "seconds"

RECEIVED = Metric(
    name="messages_received",
    kind="counter",
    help="Messages received: new, redelivered (the lease continues) or finished (deleted again).",
    labels=("queue", "kind"),
    zeros=(("new",), ("redelivered",), ("finished",)),
)
STARTED = Metric(
    name="tasks_started",
    kind="counter",
    help="Tasks that the pool started.",
    labels=_QUEUE,
    zeros=_ALONE,
)
EXTENSIONS = Metric(
    name="extensions",
    kind="counter",
    help="Lease extensions that SQS confirmed.",
    labels=_QUEUE,
    zeros=_ALONE,
)
CALLS = Metric(
    name="calls",
    kind="counter",
    help="Batch calls, each counted once, by the outcome of its first message.",
    labels=("queue", "action", "outcome"),
)
ENTRIES = Metric(
    name="call_entries",
    kind="counter",
    help="Messages in batch calls, each by its own outcome.",
    labels=("queue", "action", "outcome"),
)
RELEASES = Metric(
    name="releases",
    kind="counter",
    help="Messages that were made visible again, by cause.",
    labels=("queue", "cause"),
)
LAPSES = Metric(
    name="lapses",
    kind="counter",
    help="Messages left to become visible when their timeout ends, by cause.",
    labels=("queue", "cause"),
)
GROUP_STOPS = Metric(
    name="group_stops",
    kind="counter",
    help="Message groups that stopped because their first message was released, by cause.",
    labels=("queue", "cause"),
)
DELETES = Metric(
    name="deletes",
    kind="counter",
    help="Deletes that SQS confirmed.",
    labels=_QUEUE,
    zeros=_ALONE,
)
ABANDONED = Metric(
    name="deletes_abandoned",
    kind="counter",
    help="Deletes that SQS refused for good. The message is deleted when it is received again.",
    labels=_QUEUE,
    zeros=_ALONE,
)
LOSSES = Metric(
    name="losses",
    kind="counter",
    help="Leases that expired, were lost or were capped before their tasks ended. "
    "A lease that expires and is lost after that counts as both.",
    labels=("queue", "cause"),
    zeros=(("expired",), ("lost",), ("capped",)),
)
FAILED_TRIES = Metric(
    name="failed_tries",
    kind="counter",
    help="Extensions and deletes that failed and will be repeated.",
    labels=("queue", "action"),
    zeros=(("extend",), ("delete",)),
)
CAPS_NEAR = Metric(
    name="caps_near",
    kind="counter",
    help="Leases that will soon reach the longest time that they may last.",
    labels=_QUEUE,
    zeros=_ALONE,
)
DENIALS = Metric(
    name="permission_denials",
    kind="counter",
    help="How often SQS began to refuse an action because a permission is missing.",
    labels=("queue", "action"),
    zeros=(("extend",), ("release",), ("delete",)),
)
SLACK = Metric(
    name="extension_slack",
    kind="histogram",
    help="Time left of a lease when SQS confirmed its extension; 0 if it had expired.",
    labels=_QUEUE,
    unit=_SECONDS,
    buckets=LONG_BUCKETS,
)
CALL_SECONDS = Metric(
    name="call_duration",
    kind="histogram",
    help="Time from planning a call to its answer.",
    labels=("queue", "action"),
    unit=_SECONDS,
    buckets=CALL_BUCKETS,
)
AGE = Metric(
    name="lease_duration",
    kind="histogram",
    help="How long leases lasted that ended with a delete, a release or a lapse.",
    labels=("queue", "end"),
    unit=_SECONDS,
    buckets=AGE_BUCKETS,
)
IN_FLIGHT = Metric(
    name="in_flight_messages",
    kind="gauge",
    help="Messages that the worker holds and SQS hides.",
    labels=_QUEUE,
)
LEASE_STATUSES = Metric(
    name="leases", kind="gauge", help="Leases by status.", labels=("queue", "status")
)
PENDING_DELETES = Metric(
    name="pending_deletes",
    kind="gauge",
    help="Deletes that SQS has not confirmed yet.",
    labels=_QUEUE,
)
PENDING_RELEASES = Metric(
    name="pending_releases",
    kind="gauge",
    help="Releases that SQS has not confirmed yet.",
    labels=_QUEUE,
)
OLDEST = Metric(
    name="oldest_lease_age",
    kind="gauge",
    help="Age of the oldest lease.",
    labels=_QUEUE,
    unit=_SECONDS,
)
GROUPS = Metric(
    name="message_groups",
    kind="gauge",
    help="Message groups of a FIFO queue in strict order that the worker holds messages of.",
    labels=_QUEUE,
)
BEHIND = Metric(
    name="messages_behind",
    kind="gauge",
    help="Messages that wait behind another message of their group.",
    labels=_QUEUE,
)
STOPPED = Metric(
    name="stopped_groups",
    kind="gauge",
    help="Message groups whose first message this worker released and SQS still hides, as far as "
    "this worker knows.",
    labels=_QUEUE,
)
ALIVE = Metric(
    name="keeper_alive",
    kind="gauge",
    help="1 while the thread that extends leases runs in the keeper's process.",
)
LATE = Metric(
    name="keeper_late",
    kind="gauge",
    help="1 while the keeper's next tick is so late that leases may expire.",
)
TICK_AGE = Metric(
    name="keeper_last_tick_age",
    kind="gauge",
    help="Time since the keeper's last tick began: normally about a second.",
    unit=_SECONDS,
)
REPLACED = Metric(
    name="keeper_replaced",
    kind="counter",
    help="How often the keeper's process was replaced.",
)
STANDSTILLS = Metric(
    name="keeper_standstills",
    kind="counter",
    help="How often nothing in the keeper's process ran for a while.",
)
LOOP_AGE = Metric(
    name="worker_loop_age",
    kind="gauge",
    help="Time since the worker's event loop last turned: normally about a second, and 0 while the "
    "worker starts or shuts down.",
    unit=_SECONDS,
)
STALLED = Metric(
    name="worker_stalled",
    kind="gauge",
    help="1 while the worker's event loop is stalled: it neither starts tasks nor settles "
    "messages.",
)
POLL_AGE = Metric(
    name="last_answered_poll_age",
    kind="gauge",
    help="Time since SQS last answered a poll, with or without messages. It also grows while the "
    "worker is full.",
    labels=_QUEUE,
    unit=_SECONDS,
)
UNANSWERED = Metric(
    name="polls_unanswered",
    kind="counter",
    help="Polls that failed: SQS could not be reached, refused them, or did not answer in time.",
    labels=_QUEUE,
)

JOURNAL_LINES = Metric(
    name="journal_lines", kind="counter", help="Lines written to the worker's journal."
)
JOURNAL_DROPS = Metric(
    name="journal_dropped_lines",
    kind="counter",
    help="Lines that the journal lost: it could not write them in time, or could not keep them "
    "until they were on S3.",
)
JOURNAL_SPOOLED = Metric(
    name="journal_spooled",
    kind="gauge",
    help="Bytes of closed segments that wait for the upload to S3.",
    unit="bytes",
)

#: Counted from events.
COUNTED = (
    RECEIVED,
    STARTED,
    EXTENSIONS,
    CALLS,
    ENTRIES,
    RELEASES,
    LAPSES,
    GROUP_STOPS,
    DELETES,
    ABANDONED,
    LOSSES,
    FAILED_TRIES,
    CAPS_NEAR,
    DENIALS,
    SLACK,
    CALL_SECONDS,
    AGE,
)
#: Read from the keeper and its journal at each scrape.
READ = (
    IN_FLIGHT,
    LEASE_STATUSES,
    PENDING_DELETES,
    PENDING_RELEASES,
    OLDEST,
    GROUPS,
    BEHIND,
    STOPPED,
    ALIVE,
    LATE,
    TICK_AGE,
    REPLACED,
    STANDSTILLS,
    LOOP_AGE,
    STALLED,
    POLL_AGE,
    UNANSWERED,
    JOURNAL_LINES,
    JOURNAL_DROPS,
    JOURNAL_SPOOLED,
)
METRICS = (*COUNTED, *READ)
