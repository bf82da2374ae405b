"""Defines every metric once, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


_QUEUE = ("queue",)
#: All values of the last label, for some counters.
_KNOWN = {
    "messages_received": ("new", "redelivered", "finished"),
    "losses": ("expired", "lost", "capped"),
    "failed_tries": ("extend", "delete"),
    "permission_denials": ("extend", "release", "delete"),
}
_BUCKETS = {
    # From a short hiccup to SQS's longest timeouts.
    "extension_slack": (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0),
    "call_duration": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    # From a very short task to SQS's 12 hours.
    "lease_duration": (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0),
}


def _metrics(table: str) -> tuple[Metric, ...]:
    """Return metrics from lines `kind name/unit labels: help`."""
    return tuple(map(_metric, table.strip().splitlines()))


def _metric(row: str) -> Metric:
    head, _, meaning = row.partition(": ")
    kind, full_name, labels = head.split()
    name, _, unit = full_name.partition("/")
    return Metric(
        kind,
        name,
        meaning,
        () if labels == "-" else tuple(labels.split(",")),
        unit,
        _BUCKETS.get(name, ()),
        _KNOWN.get(name, ()),
    )


#: Counted from events.
COUNTED = _metrics("""
counter messages_received queue,kind: Messages received: new, redelivered (the lease continues) or finished (deleted again).
counter tasks_started queue: Tasks that the pool started.
counter extensions queue: Lease extensions that SQS confirmed.
counter calls queue,action,outcome: Batch calls, each counted once, by the outcome of its first message.
counter call_entries queue,action,outcome: Messages in batch calls, each by its own outcome.
counter releases queue,cause: Messages that were made visible again, by cause.
counter lapses queue,cause: Messages left to become visible when their timeout ends, by cause.
counter group_stops queue,cause: Message groups that stopped because their first message was released, by cause.
counter deletes queue: Deletes that SQS confirmed.
counter deletes_abandoned queue: Deletes that SQS refused for good. The message is deleted when it is received again.
counter losses queue,cause: Leases that expired, were lost or were capped before their tasks ended. A lease that expires and is lost after that counts as both.
counter failed_tries queue,action: Extensions and deletes that failed and will be repeated.
counter caps_near queue: Leases that will soon reach the longest time that they may last.
counter permission_denials queue,action: How often SQS began to refuse an action because a permission is missing.
histogram extension_slack/seconds queue: Time left of a lease when SQS confirmed its extension; 0 if it had expired.
histogram call_duration/seconds queue,action: Time from planning a call to its answer.
histogram lease_duration/seconds queue,end: How long leases lasted that ended with a delete, a release or a lapse.
""")  # noqa: E501
#: Read from the keeper and its journal at each scrape.
READ = _metrics("""
gauge in_flight_messages queue: Messages that the worker holds and SQS hides.
gauge leases queue,status: Leases by status.
gauge pending_deletes queue: Deletes that SQS has not confirmed yet.
gauge pending_releases queue: Releases that SQS has not confirmed yet.
gauge oldest_lease_age/seconds queue: Age of the oldest lease.
gauge message_groups queue: Message groups of a FIFO queue in strict order that the worker holds messages of.
gauge messages_behind queue: Messages that wait behind another message of their group.
gauge stopped_groups queue: Message groups whose first message this worker released and SQS still hides, as far as this worker knows.
gauge keeper_alive -: 1 while the thread that extends leases runs in the keeper's process.
gauge keeper_late -: 1 while the keeper's next tick is so late that leases may expire.
gauge keeper_last_tick_age/seconds -: Time since the keeper's last tick began: normally about a second.
counter keeper_replaced -: How often the keeper's process was replaced.
counter keeper_standstills -: How often nothing in the keeper's process ran for a while.
gauge worker_loop_age/seconds -: Time since the worker's event loop last turned: normally about a second, and 0 while the worker starts or shuts down.
gauge worker_stalled -: 1 while the worker's event loop is stalled: it neither starts tasks nor settles messages.
gauge last_answered_poll_age/seconds queue: Time since SQS last answered a poll, with or without messages. It also grows while the worker is full.
counter polls_unanswered queue: Polls that failed: SQS could not be reached, refused them, or did not answer in time.
counter journal_lines -: Lines written to the worker's journal.
counter journal_dropped_lines -: Lines that the journal lost: it could not write them in time, or could not keep them until they were on S3.
gauge journal_spooled/bytes -: Bytes of closed segments that wait for the upload to S3.
""")  # noqa: E501
METRICS = (*COUNTED, *READ)
