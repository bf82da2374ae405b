"""Faults that are planted in the product, and the invariant that each of them breaks.

Each has a world that shows it early. If a seed no longer does, use another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from celery_sqs_heartbeat.current.table import Flag, Record
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.keeper import lease_engine
from celery_sqs_heartbeat.keeper.lease_engine import LeaseEngine
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import Call, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.message import GroupOrder, Message
from celery_sqs_heartbeat.leases.received_as import StaleCalls
from celery_sqs_heartbeat.leases.results import Results
from celery_sqs_heartbeat.link import child
from celery_sqs_heartbeat.link.deliveries import Credit
from celery_sqs_heartbeat.link.frames import BrokenLink, LineReader
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.receiving import intake as intakes
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.receiving.receiver import Receiver
from celery_sqs_heartbeat.receiving.reception import Reception
from celery_sqs_heartbeat.sqs import adapter, queues
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.transport.binding import OrphanedMessages
from celery_sqs_heartbeat.transport.feed import Feed
from tests.simulation import profile, world
from tests.simulation.__main__ import simulate
from tests.simulation.faults import Holding
from tests.simulation.link import Line
from tests.simulation.network import Polls
from tests.simulation.process import KeeperProcess
from tests.simulation.profile import WITHIN
from tests.simulation.truth import Receives, Violation
from tests.simulation.within import Within
from tests.simulation.worker import SimulatedWorker
from tests.simulation.world import World

#: How often a server holds changes of visibility, where late calls are wanted.
OFTEN = 100

_allow, _begin, _fill = Intake.allow, Credit.begin, Feed.fill
_record_of, _run, _prepare = Record.of, KeeperProcess.run, Receiver._prepare
_add, _end, _apply, _receive = GroupOrder.add, GroupOrder.end, Results.apply, Polls.receive


def _nothing(*_: object, **__: object) -> list[object]:
    return []


def _false(*_: object) -> bool:
    return False


def _apply_from_the_answer(
    results: Results, entry: Entry, outcome: Outcome, call: Call, now: float
) -> None:
    _apply(results, entry, outcome, call, now)
    if entry.action is Action.EXTEND and outcome is Outcome.DONE:
        entry.lease.expires_at = now + entry.timeout


def _receive_without_a_timeout(self, count, wait, timeout, *others):  # type: ignore[no-untyped-def]
    return _receive(self, count, wait, None, *others)


def _lease_only(
    intake: Intake, queue: ConsumedQueue, messages: Iterable[Message], sent_at: float
) -> None:
    for message in messages:
        intake._lease(queue, message, sent_at)


def _allow_too_many(intake: Intake, limit: int) -> None:
    _allow(intake, limit + 100)


def _begin_anew(credit: Credit) -> None:
    credit._got.clear()
    _begin(credit)


def _begin_silently(credit: Credit) -> None:
    inlet, credit._inlet = credit._inlet, Mock()
    _begin(credit)
    credit._inlet = inlet


def _fill_silently(feed: Feed) -> None:
    wake, feed._wake = feed._wake, bool
    _fill(feed)
    feed._wake = wake


def _without_releasing(lease: Lease, *, is_over: bool = False) -> Record:
    record = _record_of(lease, is_over=is_over)
    return record._replace(flags=record.flags & ~Flag.RELEASING)


def _run_with_worker(process: KeeperProcess, job: Callable[[], None]) -> None:
    clock, paused_until = process.worker.world.clock, process.worker.paused_until
    if clock() < paused_until:
        clock.at(paused_until, lambda: _run_with_worker(process, job))
    else:
        _run(process, job)


def _prepare_always(receiver: Receiver, poll: Poll) -> ConsumedQueue:
    with patch.object(LeaseEngine, "is_stuck", return_value=False):
        return _prepare(receiver, poll)


def _waits_until_asked(order: GroupOrder, lease: Lease) -> bool:
    first = order.first(lease)
    return first is not None and first is not lease and first.goal is Goal.HOLD


def _add_unless_its_place_was_lost(order: GroupOrder, lease: Lease) -> None:
    if lease.has_place:
        _add(order, lease)


def _end_as_if_held(order: GroupOrder, lease: Lease, *, is_deleted: bool) -> None:
    if not is_deleted:
        order.stop_behind(lease)
    _end(order, lease, is_deleted=is_deleted)


@pytest.mark.parametrize(
    ("part", "name", "broken", "kind", "seed", "said"),
    [
        # The expiry is counted from the answer.
        (Results, "apply", _apply_from_the_answer, "storm", 0, "6: "),
        # Every lease is capped at once.
        (policy, "next_timeout", lambda lease, now: 0, "calm", 0, "4: "),
        # A release that may have taken effect is repeated.
        (adapter, "of_exception", lambda *_: Outcome.FAILED, "storm", 20, "6: "),
        # A release is sent after its lease expired.
        (Call, "send_by", math.inf, "storm-fifo-apart", 21, "is released too late"),
        # A worker does not follow its queue's timeout, which changes.
        (Polls, "receive", _receive_without_a_timeout, "calm", 1, "(2: .* again|4: |6: |effic)"),
        # Settings are checked against a timeout that was not read.
        (queues, "QueueAttributes", lambda is_known: QueueAttributes(), "calm", 26, "threshold"),
        # A planned release is not marked.
        (Record, "of", _without_releasing, "calm-apart", 14, "10: .* again"),
        (HeldMessages, "to_resume", _nothing, "calm-apart", 0, "runs twice on"),
        # A dead worker's leases are kept.
        (KeeperProcess, "outlive", _nothing, "storm-apart", 0, "10: .* not released"),
        # The keeper waits for its worker.
        (KeeperProcess, "run", _run_with_worker, "calm-apart", 1, "2: .* runs again"),
        # Polls have no deadline.
        (SimulatedWorker, "gives_up_polls", False, "storm", 15, "liveness:"),
        # The last poll is not read, in the worker's process and in the keeper's.
        (Within, "reads_last_poll", False, "calm", 7, "ended without reading"),
        (KeeperProcess, "reads_last_poll", False, "calm-apart", 18, "ended without reading"),
        # The last poll's messages are kept.
        (Intake, "_refuse", _lease_only, "storm", 1, "8: "),
        # What waits at the end is kept.
        (Intake, "_release_ended", _nothing, "storm-fifo", 90, "8: "),
        (Intake, "allow", _allow_too_many, "calm", 0, r"messages for \d+ slots"),
        # What a dead keeper had handed over is forgotten.
        (Credit, "begin", _begin_anew, "calm-apart", 17, r"messages for \d+ slots"),
        # A new keeper never learns the room.
        (Credit, "begin", _begin_silently, "calm-apart", 0, "liveness: .* receives nothing"),
        # A free slot wakes no thread.
        (Feed, "fill", _fill_silently, "calm-apart", 3, "liveness: .* does not deliver"),
        (Receives, "explain", _nothing, "calm-apart", 0, "11: .* without a cause"),
        # What the polls of a lost connection may bring has no room.
        (Receiver, "_room", lambda it: it.intake.room, "calm-apart", 709_000_001, "for 8 slots"),
        # A queue of which no more calls are made is still polled.
        (Receiver, "_prepare", _prepare_always, "calm-apart", 705_000_003, "makes no calls"),
        # Without the net, a message whose end was lost is kept for good.
        (OrphanedMessages, "look", _nothing, "storm", 3, "(liveness: |8: )"),
        # No message waits for its group, in the worker's process and in the keeper's.
        (GroupOrder, "waits_behind", _false, "calm-fifo", 0, "9: "),
        (GroupOrder, "waits_behind", _false, "storm-fifo-apart", 0, "9: "),
        # The next starts when a delete is requested.
        (GroupOrder, "waits_behind", _waits_until_asked, "calm-fifo-apart", 0, "9: "),
        # Nothing stops a group, in the worker's process and in the keeper's.
        (GroupOrder, "stop_behind", _nothing, "calm-fifo", 3, "9: "),
        (GroupOrder, "stop_behind", _nothing, "calm-fifo-apart", 2, "9: "),
        # A message received again has no place.
        (GroupOrder, "add", _add_unless_its_place_was_lost, "calm-fifo", 60, "9: "),
        # A confirmed release stops later messages.
        (GroupOrder, "end", _end_as_if_held, "calm-fifo", 39, "runs twice"),
        # A message behind one that is left to SQS is handed over.
        (intakes, "_NOT_OURS", (), "storm-fifo", 0, "9: "),
        # What waits for its turn is never handed over.
        (GroupWaitlist, "take_due", _nothing, "calm-fifo", 0, "9: groups are stalled"),
    ],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
    part: object,
    name: str,
    broken: object,
    kind: str,
    seed: int,
    said: str,
) -> None:
    monkeypatch.setattr(part, name, broken)
    with pytest.raises((Violation, ConfigurationError), match=said):
        World(kind, seed).run()


def test_what_the_polls_of_a_lost_connection_bring_must_not_be_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def draw_few_receives(*drawn: Any) -> profile.Profile:
        return replace(profile.draw(*drawn), is_fifo=True, max_receive_count=2)

    monkeypatch.setattr(world, "draw", draw_few_receives)
    World("calm", 8_520_000_013).run()
    monkeypatch.setattr(Reception, "_heir", lambda *_: None)
    with pytest.raises(Violation, match=r"11: .* dead letter after 1 .*: 1 x not delivered"):
        World("calm", 8_520_000_013).run()


@pytest.mark.thorough
def test_a_threshold_above_the_timeout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseTerms, "with_room", lambda terms: terms)
    # The queues of every fourth seed change.
    _, _, failure = simulate(2_000, 1, WITHIN)
    assert failure is not None
    assert re.search(r"Violation: (2: .* runs again|4: |6: |efficiency: )", failure)


def test_a_queue_that_hangs_without_a_limit_takes_the_threads_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (lease_engine, child):
        monkeypatch.setattr(module, "MOST_HANGING", math.inf)
    with pytest.raises(Violation, match="waits for a thread, although its queue answers"):
        World("calm-apart", 23).run()


@pytest.mark.parametrize(
    ("seed", "forgotten", "nothing"),
    [
        pytest.param(25, "limit", math.inf, id="extensions"),
        pytest.param(393, "releases", False, id="releases", marks=pytest.mark.thorough),
    ],
)
def test_a_book_that_forgets_older_calls_after_a_redelivery_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: int, forgotten: str, nothing: object
) -> None:
    monkeypatch.setattr(Holding, "TIMES", OFTEN)
    monkeypatch.setattr(StaleCalls, forgotten, lambda *_: nothing)
    with pytest.raises(Violation, match=r"^6: "):
        World("storm", seed).run()


def test_half_a_frame_of_a_dead_keeper_must_not_reach_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: dict[object, LineReader] = {}
    new_line, kill = Line.__init__, KeeperProcess.kill

    def with_the_old_reader(self, clock, deliver, *others):  # type: ignore[no-untyped-def]
        new_line(self, clock, deliver, *others)
        self._reader = readers.setdefault(deliver, self._reader)

    def kill_as_it_writes(process: KeeperProcess) -> None:
        if process.is_up:
            process._to_worker.send(b'["half of')
        kill(process)

    monkeypatch.setattr(KeeperProcess, "kill", kill_as_it_writes)
    World("storm-apart", 165).run()
    monkeypatch.setattr(Line, "__init__", with_the_old_reader)
    with pytest.raises(BrokenLink):
        World("storm-apart", 165).run()
