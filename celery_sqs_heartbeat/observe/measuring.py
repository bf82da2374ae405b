"""Measures a keeper by its events and its leases."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from celery_sqs_heartbeat.common.journal_facts import JournalStats
from celery_sqs_heartbeat.leases.events import CallKind, Event, EventKind, KeeperHealth, loss_of
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseView
from celery_sqs_heartbeat.leases.message import is_fifo, queue_name
from celery_sqs_heartbeat.leases.policy import CALL_KIND
from celery_sqs_heartbeat.leases.received_as import RecentKeys
from celery_sqs_heartbeat.observe.catalogue import COUNTED
from celery_sqs_heartbeat.observe.watched import PolledQueue, StoppedGroups, Watched

#: A message: its queue's URL and its id.
Key = tuple[str, str]
_By = TypeVar("_By", bound=Hashable)

#: Calls and entries that are remembered, so that each is counted once. All events of a call come
#: within milliseconds of each other.
_REMEMBERED = 4_096
#: Minutes for which calls are counted.
MINUTES = 30

#: What counts each kind of events, and which attribute of the event is its last label.
_COUNTS: Mapping[EventKind, tuple[str, str]] = {
    EventKind.TASK_STARTED: ("tasks_started", ""),
    EventKind.LEASE_EXTENDED: ("extensions", ""),
    EventKind.MESSAGE_DELETED: ("deletes", ""),
    EventKind.DELETE_ABANDONED: ("deletes_abandoned", ""),
    EventKind.LEASE_CAP_NEAR: ("caps_near", ""),
    EventKind.MESSAGE_RECEIVED: ("messages_received", "cause"),
    EventKind.MESSAGE_RELEASED: ("releases", "cause"),
    EventKind.MESSAGE_LAPSING: ("lapses", "cause"),
    EventKind.EXTENSION_FAILED: ("failed_tries", "action"),
    EventKind.DELETE_FAILED: ("failed_tries", "action"),
    EventKind.PERMISSION_DENIED: ("permission_denials", "action"),
}
_ENDS = {
    EventKind.MESSAGE_DELETED: "deleted",
    EventKind.MESSAGE_RELEASED: "released",
    EventKind.MESSAGE_LAPSING: "lapsed",
}
#: After these a lease is forgotten.
ENDS = frozenset({*_ENDS, EventKind.DELETE_ABANDONED})


class Measurement(NamedTuple):
    """A value of a metric, with the values of its labels in order."""

    metric: str
    labels: tuple[str, ...]
    value: float = 1.0


class Measurer:
    """Measures one keeper, and knows what its metrics and its page share. Safe for any thread.

    Attributes:
        keeper: What is measured; None before `watch`.
        polled: Returns the state of its queues' polls.
        stopped: The message groups that have stopped.
    """

    def __init__(self) -> None:
        self.keeper: Watched | None = None
        self.polled: Callable[[], Sequence[PolledQueue]] = list
        self.stopped = StoppedGroups()
        self._journal: Callable[[], JournalStats] | None = None
        self._lock = threading.Lock()
        # Calls and their entries, with the time of their answers, because a restarted keeper
        # counts its calls from 1 again.
        self._seen = RecentKeys[tuple[object, ...]](_REMEMBERED)
        self._minutes: Counter[tuple[int, CallKind]] = Counter()
        # Of events, and of leases.
        self._counted: set[str] = set()
        self._queues: dict[str, None] = {}

    def watch(
        self,
        keeper: Watched,
        journal: Callable[[], JournalStats] | None = None,
        polled: Callable[[], Sequence[PolledQueue]] = list,
    ) -> None:
        """Read the gauges of that keeper, its journal and its polls from now on."""
        self.keeper, self._journal, self.polled = keeper, journal, polled

    def measure(self, event: Event) -> Iterator[Measurement]:
        """Yield the measurements of an event."""
        queue = queue_name(event.queue_url)
        kind = event.kind
        self.stopped.note(event)
        if queue not in self._counted:
            self._counted.add(queue)
            for counted in COUNTED:
                for labels in counted.zeros:
                    yield Measurement(counted.name, (queue, *labels), 0.0)
        cause, action = event.cause or "unknown", event.action
        if kind in _COUNTS:
            metric, by = _COUNTS[kind]
            last = {"cause": cause, "action": action.value if action else ""}
            yield Measurement(metric, (queue, last[by]) if by else (queue,))
        if event.stops_group:
            yield Measurement("group_stops", (queue, cause))
        if loss := loss_of(event):
            yield Measurement("losses", (queue, loss))
        if kind is EventKind.LEASE_EXTENDED:
            yield Measurement("extension_slack", (queue,), max(0.0, event.slack))
        if kind in _ENDS:
            yield Measurement("lease_duration", (queue, _ENDS[kind]), event.held_for)
        if action and event.outcome:
            call, outcome = f"{CALL_KIND[action].value}Batch", event.outcome.value
            if self._is_new(event):
                self._note_minute(int(event.at // 60), CALL_KIND[action])
                yield Measurement("calls", (queue, call, outcome))
                yield Measurement("call_duration", (queue, call), event.seconds)
            if self._is_new(event, event.message_id):
                yield Measurement("call_entries", (queue, call, outcome))

    def read(self) -> Iterator[Measurement]:
        """Yield every gauge, and the counters of the keeper's health and of the journal.

        A queue that has had leases stays, with zeros.
        """
        if self.keeper is not None:
            yield from _read_health(self.keeper.health)
            if self._journal is not None:
                yield from _read_journal(self._journal())
            yield from _read_polls(self.polled())
            yield from self._read_leases(self.keeper)

    def calls_by_minute(self) -> Counter[tuple[int, CallKind]]:
        """Return the number of calls by the minute of their answer, and their kind."""
        with self._lock:
            return self._minutes.copy()

    def _is_new(self, event: Event, *message: str) -> bool:
        """Return whether this is the first event of a call, or of one message's part in it."""
        key = (event.call_number, event.at, *message)
        with self._lock:
            is_new = bool(event.call_number) and key not in self._seen
            if is_new:
                self._seen.add(key)
        return is_new

    def _note_minute(self, minute: int, call: CallKind) -> None:
        with self._lock:
            self._minutes[minute, call] += 1
            for old in [each for each in self._minutes if each[0] < minute - MINUTES]:
                del self._minutes[old]

    def _read_leases(self, keeper: Watched) -> Iterator[Measurement]:
        leases = keeper.snapshot()
        by_queue = grouped(leases, lambda lease: queue_name(lease.queue_url))
        behind, stopped = behind_others(leases), self.stopped.hidden(keeper.now())
        self._queues |= dict.fromkeys(by_queue)
        for queue in tuple(self._queues):
            held = by_queue.get(queue, ())
            counts = totals(held, behind)
            yield Measurement("in_flight_messages", (queue,), counts["in_flight"])
            yield Measurement("pending_deletes", (queue,), counts["pending_deletes"])
            yield Measurement("pending_releases", (queue,), counts["pending_releases"])
            yield Measurement("oldest_lease_age", (queue,), counts["oldest"] or 0.0)
            if is_fifo(queue):
                yield Measurement("message_groups", (queue,), counts["groups"])
                yield Measurement("messages_behind", (queue,), counts["behind"])
                yield Measurement("stopped_groups", (queue,), stopped.get(queue, 0))
            statuses = Counter(lease.status for lease in held)
            for status in LeaseStatus:
                yield Measurement("leases", (queue, status.value), statuses[status])


def _read_health(health: KeeperHealth) -> Iterator[Measurement]:
    yield Measurement("keeper_alive", (), float(health.alive))
    yield Measurement("keeper_late", (), float(health.late))
    if health.last_tick_age is not None:
        yield Measurement("keeper_last_tick_age", (), health.last_tick_age)
    yield Measurement("keeper_replaced", (), float(health.replaced))
    yield Measurement("keeper_standstills", (), float(health.standstills))
    yield Measurement("worker_loop_age", (), health.loop_age or 0.0)
    yield Measurement("worker_stalled", (), float(health.stalled))


def _read_journal(stats: JournalStats) -> Iterator[Measurement]:
    yield Measurement("journal_lines", (), stats.written)
    yield Measurement("journal_dropped_lines", (), stats.dropped)
    yield Measurement("journal_spooled", (), stats.spooled_bytes)


def _read_polls(queues: Iterable[PolledQueue]) -> Iterator[Measurement]:
    # By name, because queues of two accounts or regions may share one.
    ages: dict[str, float] = {}
    unanswered: Counter[str] = Counter()
    for queue in queues:
        unanswered[queue.queue] += queue.unanswered
        if queue.last_answered_age is not None:
            ages[queue.queue] = max(ages.get(queue.queue, 0.0), queue.last_answered_age)
    for name, age in ages.items():
        yield Measurement("last_answered_poll_age", (name,), age)
    for name, count in unanswered.items():
        yield Measurement("polls_unanswered", (name,), count)


def key_of(lease: LeaseView) -> Key:
    """Return the key that identifies a lease."""
    return (lease.queue_url, lease.message_id)


def grouped(
    leases: Iterable[LeaseView], key: Callable[[LeaseView], _By]
) -> Mapping[_By, Sequence[LeaseView]]:
    """Return the leases by a key, the key with the most leases first."""
    groups: dict[_By, list[LeaseView]] = defaultdict(list)
    for lease in leases:
        groups[key(lease)].append(lease)
    return dict(sorted(groups.items(), key=lambda group: len(group[1]), reverse=True))


def totals(leases: Sequence[LeaseView], behind: Set[Key]) -> dict[str, Any]:
    """Return the number of leases and their states. Times are in seconds.

    Each lease is either running, waiting, or pending for its delete or its release. `not_well`
    counts leases that have expired, are lost, or are not extended (any more).

    Args:
        behind: The leases that wait behind another of their message group. May have others, too.
    """
    goals = Counter(lease.goal for lease in leases)
    running = sum(lease.goal is Goal.HOLD and lease.running_for is not None for lease in leases)
    return {
        "in_flight": len(leases),
        "running": running,
        "waiting": goals[Goal.HOLD] - running,
        "pending_deletes": goals[Goal.DELETE],
        "pending_releases": goals[Goal.RELEASE],
        # A late or dead keeper has not noted an expiry yet.
        "not_well": sum(
            lease.status is not LeaseStatus.OWNED or lease.expires_in <= 0 for lease in leases
        ),
        "groups": len({_group(lease) for lease in leases if lease.is_in_order}),
        "behind": sum(key_of(lease) in behind for lease in leases),
        "oldest": max((lease.held_for for lease in leases), default=None),
        "least_left": min((lease.expires_in for lease in leases), default=None),
    }


def behind_others(leases: Iterable[LeaseView]) -> Set[Key]:
    """Return the held leases that are not the first of their group.

    Args:
        leases: All of a keeper.
    """
    firsts: dict[tuple[str, str | None], int] = {}
    ordered = sorted((lease for lease in leases if lease.is_in_order), key=_place)
    for lease in ordered:
        firsts.setdefault(_group(lease), _place(lease))
    return {
        key_of(lease)
        for lease in ordered
        if lease.goal is Goal.HOLD and _place(lease) > firsts[_group(lease)]
    }


def _group(lease: LeaseView) -> tuple[str, str | None]:
    return (lease.queue_url, lease.group)


def _place(lease: LeaseView) -> int:
    return int(lease.sequence_number or 0)
