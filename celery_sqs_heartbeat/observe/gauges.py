"""Reads the current state of a keeper."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from celery_sqs_heartbeat.common.journal_facts import JournalStats
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseView
from celery_sqs_heartbeat.leases.message import is_fifo, queue_name
from celery_sqs_heartbeat.observe import catalogue
from celery_sqs_heartbeat.observe.measurements import Measurement
from celery_sqs_heartbeat.observe.message_groups import StoppedGroups, behind_others, count_groups
from celery_sqs_heartbeat.observe.observers import Watched
from celery_sqs_heartbeat.observe.polled import Polled


class Gauges:
    """Reads the gauges of a keeper. Once seen, a queue stays, with zeros.

    Args:
        journal: Returns the journal's numbers, if there is a journal.
        polled: How SQS answers the queues' polls, if that is known.
        stopped: Which message groups have stopped.
    """

    def __init__(
        self,
        keeper: Watched,
        journal: Callable[[], JournalStats] | None = None,
        polled: Polled | None = None,
        *,
        stopped: StoppedGroups,
    ) -> None:
        self._keeper = keeper
        self._stopped = stopped
        self._journal = journal
        self._polled = polled
        self._queues: dict[str, None] = {}

    def read(self) -> Iterator[Measurement]:
        """Yield every gauge, and the counters of the keeper's health and of the journal."""
        yield from self._read_health()
        if self._journal is not None:
            stats = self._journal()
            yield Measurement(catalogue.JOURNAL_LINES, (), stats.written)
            yield Measurement(catalogue.JOURNAL_DROPS, (), stats.dropped)
            yield Measurement(catalogue.JOURNAL_SPOOLED, (), stats.spooled_bytes)
        yield from self._read_polls()
        yield from self._read_leases()

    def _read_health(self) -> Iterator[Measurement]:
        health = self._keeper.health
        yield Measurement(catalogue.ALIVE, (), float(health.alive))
        yield Measurement(catalogue.LATE, (), float(health.late))
        if health.last_tick_age is not None:
            yield Measurement(catalogue.TICK_AGE, (), health.last_tick_age)
        yield Measurement(catalogue.REPLACED, (), float(health.replaced))
        yield Measurement(catalogue.STANDSTILLS, (), float(health.standstills))
        yield Measurement(catalogue.LOOP_AGE, (), health.loop_age or 0.0)
        yield Measurement(catalogue.STALLED, (), float(health.stalled))

    def _read_polls(self) -> Iterator[Measurement]:
        # By name, because queues of two accounts or regions may share one.
        ages: dict[str, float] = {}
        unanswered: Counter[str] = Counter()
        for queue in self._polled.view() if self._polled is not None else ():
            unanswered[queue.queue] += queue.unanswered
            if queue.age is not None:
                ages[queue.queue] = max(ages.get(queue.queue, 0.0), queue.age)
        for name, count in unanswered.items():
            if name in ages:
                yield Measurement(catalogue.POLL_AGE, (name,), ages[name])
            yield Measurement(catalogue.UNANSWERED, (name,), count)

    def _read_leases(self) -> Iterator[Measurement]:
        statuses: Counter[tuple[str, LeaseStatus]] = Counter()
        goals: Counter[tuple[str, Goal]] = Counter()
        oldest: dict[str, float] = {}
        leases = self._keeper.snapshot()
        for lease in leases:
            queue = queue_name(lease.queue_url)
            statuses[queue, lease.status] += 1
            goals[queue, lease.goal] += 1
            oldest[queue] = max(oldest.get(queue, 0.0), lease.held_for)
        self._queues |= dict.fromkeys(oldest)
        yield from self._read_groups(leases)
        for queue in tuple(self._queues):
            counts = [goals[queue, goal] for goal in Goal]
            yield Measurement(catalogue.IN_FLIGHT, (queue,), sum(counts))
            yield Measurement(catalogue.PENDING_DELETES, (queue,), goals[queue, Goal.DELETE])
            yield Measurement(catalogue.PENDING_RELEASES, (queue,), goals[queue, Goal.RELEASE])
            yield Measurement(catalogue.OLDEST, (queue,), oldest.get(queue, 0.0))
            for status in LeaseStatus:
                yield Measurement(
                    catalogue.LEASE_STATUSES, (queue, status.value), statuses[queue, status]
                )

    def _read_groups(self, leases: Sequence[LeaseView]) -> Iterator[Measurement]:
        by_queue: dict[str, list[LeaseView]] = defaultdict(list)
        for lease in leases:
            if lease.is_in_order:
                by_queue[queue_name(lease.queue_url)].append(lease)
        stopped = self._stopped.hidden(self._keeper.now())
        for queue in filter(is_fifo, tuple(self._queues)):
            ordered = by_queue[queue]
            yield Measurement(catalogue.GROUPS, (queue,), count_groups(ordered))
            yield Measurement(catalogue.BEHIND, (queue,), len(behind_others(ordered)))
            yield Measurement(catalogue.STOPPED, (queue,), stopped.get(queue, 0))
