"""Every metric, once, for each system that they are shown in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Common beginning of every name.
PREFIX = "sqs_heartbeat"
#: From a hiccup to SQS's longest timeouts, in seconds.
LONG_BUCKETS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
#: Of calls, in seconds.
CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Of the age at which a lease ends, in seconds: from a task of a moment to SQS's 12 hours.
AGE_BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What one metric tells.

    Attributes:
        name: Without prefix, unit and what a system adds to it.
        kind: "counter", "gauge" or "histogram".
        unit: "seconds" or nothing.
        buckets: Upper bounds, of a histogram.
        zeros: Labels after the queue, of a counter, for which a queue begins with 0: an
            increase from nothing to 1 is none to Prometheus.
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
        """Its name in Prometheus, but for the `_total` of a counter."""
        return "_".join(filter(None, (PREFIX, self.name, self.unit)))

    @property
    def series(self) -> str:
        """Its name in Prometheus, as it is documented."""
        return f"{self.family}_total" if self.kind == "counter" else self.family


_QUEUE = ("queue",)
_ALONE = ((),)
_SECONDS = "seconds"

RECEIVED = Metric(
    name="messages_received",
    kind="counter",
    help="Messages received: new, redelivered (their lease goes on) or finished (deleted again).",
    labels=("queue", "kind"),
    zeros=(("new",), ("redelivered",), ("finished",)),
)
STARTED = Metric(
    name="tasks_started",
    kind="counter",
    help="Tasks that the pool began to run.",
    labels=_QUEUE,
    zeros=_ALONE,
)
EXTENSIONS = Metric(
    name="extensions",
    kind="counter",
    help="Leases extended, as SQS confirmed.",
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
    help="Messages made visible again, by the reason.",
    labels=("queue", "cause"),
)
LAPSES = Metric(
    name="lapses",
    kind="counter",
    help="Messages that are left to become visible by themselves, by the reason.",
    labels=("queue", "cause"),
)
GROUP_STOPS = Metric(
    name="group_stops",
    kind="counter",
    help="Message groups that stopped, as their first message was given back, by the reason.",
    labels=("queue", "cause"),
)
DELETES = Metric(
    name="deletes",
    kind="counter",
    help="Messages deleted, as SQS confirmed.",
    labels=_QUEUE,
    zeros=_ALONE,
)
ABANDONED = Metric(
    name="deletes_abandoned",
    kind="counter",
    help="Deletes given up as they can't succeed: the message comes back and is deleted then.",
    labels=_QUEUE,
    zeros=_ALONE,
)
LOSSES = Metric(
    name="losses",
    kind="counter",
    help="Leases that expired, were lost or were capped before their tasks ended. "
    "One that expires and is lost after that counts as both.",
    labels=("queue", "cause"),
    zeros=(("expired",), ("lost",), ("capped",)),
)
FAILED_TRIES = Metric(
    name="failed_tries",
    kind="counter",
    help="Extensions and deletes that failed and are repeated.",
    labels=("queue", "action"),
    zeros=(("extend",), ("delete",)),
)
CAPS_NEAR = Metric(
    name="caps_near",
    kind="counter",
    help="Leases that will soon have lasted for as long as they may.",
    labels=_QUEUE,
    zeros=_ALONE,
)
DENIALS = Metric(
    name="permission_denials",
    kind="counter",
    help="Times that SQS began to refuse an action because a permission is missing.",
    labels=("queue", "action"),
    zeros=(("extend",), ("release",), ("delete",)),
)
SLACK = Metric(
    name="extension_slack",
    kind="histogram",
    help="What was left of a lease when SQS confirmed its extension; 0 after its expiry.",
    labels=_QUEUE,
    unit=_SECONDS,
    buckets=LONG_BUCKETS,
)
CALL_SECONDS = Metric(
    name="call_duration",
    kind="histogram",
    help="From the planning of a call to its answer.",
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
    help="Messages that the worker has and SQS hides.",
    labels=_QUEUE,
)
STANDINGS = Metric(
    name="leases", kind="gauge", help="Leases by standing.", labels=("queue", "standing")
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
    help="How long the oldest lease has lasted.",
    labels=_QUEUE,
    unit=_SECONDS,
)
GROUPS = Metric(
    name="message_groups",
    kind="gauge",
    help="Message groups of a FIFO queue, kept in order, that the worker has messages of.",
    labels=_QUEUE,
)
BEHIND = Metric(
    name="messages_behind",
    kind="gauge",
    help="Messages that wait behind another of their group.",
    labels=_QUEUE,
)
STOPPED = Metric(
    name="stopped_groups",
    kind="gauge",
    help="Message groups whose first message was given back with a delay that is not over, as far "
    "as this worker knows.",
    labels=_QUEUE,
)
ALIVE = Metric(name="keeper_alive", kind="gauge", help="1 while the keeper's thread runs.")
LATE = Metric(
    name="keeper_late",
    kind="gauge",
    help="1 while the keeper's next round is so late that leases may expire.",
)
ROUND_AGE = Metric(
    name="keeper_last_round_age",
    kind="gauge",
    help="Time since the keeper's last round began: about a second when all is well.",
    unit=_SECONDS,
)
REPLACED = Metric(
    name="keeper_replaced",
    kind="counter",
    help="Times that the keeper's process, or a thread of it, was replaced.",
)
STANDSTILLS = Metric(
    name="keeper_standstills",
    kind="counter",
    help="Times that the keeper's whole process stood still.",
)
LOOP_AGE = Metric(
    name="worker_loop_age",
    kind="gauge",
    help="Time since the worker's event loop last turned: about a second when all is well, and 0 "
    "while it starts or ends.",
    unit=_SECONDS,
)
STALLED = Metric(
    name="worker_stalled",
    kind="gauge",
    help="1 while the worker's event loop stands still: it neither receives nor settles.",
)
POLL_AGE = Metric(
    name="last_answered_poll_age",
    kind="gauge",
    help="Time since SQS last answered a poll, with messages or without. Grows while the worker is "
    "full, too.",
    labels=_QUEUE,
    unit=_SECONDS,
)
UNANSWERED = Metric(
    name="polls_unanswered",
    kind="counter",
    help="Polls that were not answered in time; the queue was polled again.",
    labels=_QUEUE,
)

JOURNAL_LINES = Metric(name="journal_lines", kind="counter", help="Lines in the worker's journal.")
JOURNAL_DROPS = Metric(
    name="journal_dropped_lines",
    kind="counter",
    help="Lines that the journal lost: it could not write them in time, or not keep them until "
    "S3 took them.",
)
JOURNAL_SPOOLED = Metric(
    name="journal_spooled",
    kind="gauge",
    help="Bytes of closed segments that wait to be shipped to S3.",
    unit="bytes",
)

#: From events.
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
#: Read from the keeper, and from its journal, whenever somebody looks.
READ = (
    IN_FLIGHT,
    STANDINGS,
    PENDING_DELETES,
    PENDING_RELEASES,
    OLDEST,
    GROUPS,
    BEHIND,
    STOPPED,
    ALIVE,
    LATE,
    ROUND_AGE,
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
