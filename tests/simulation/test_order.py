"""Worlds in which messages of a group run one after the other, and faults that break that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.message import GroupOrder
from tests.simulation.profile import ORDERED
from tests.simulation.runner import report, simulate
from tests.simulation.truth import Violation
from tests.simulation.world import World

#: Take some seconds, and some minutes.
HOURS, MANY_HOURS = 60, 3_000


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """Discard all log lines."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_no_message_begins_before_those_ahead_of_it_are_deleted() -> None:
    tally, _, failure = simulate(HOURS, kinds=ORDERED)
    assert failure is None, failure
    assert tally.worker_hours >= HOURS
    assert tally.executions > 100


@pytest.mark.thorough
def test_no_message_begins_too_early_in_thousands_of_worker_hours() -> None:
    tally, _, failure = simulate(MANY_HOURS, kinds=ORDERED)
    assert failure is None, failure
    assert {"worker died", "pause", "suspend", "capped"} <= {*tally.causes}
    assert "drops a message that no extension confirmed" in tally.disturbances
    assert tally.disturbances["keeper dies"] > 50


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(
            "calm-fifo", 31, id="a message received again while its delete failed had no place"
        ),
        pytest.param("calm-fifo-apart", 38, id="a confirmed release released later messages"),
        pytest.param("storm-fifo-apart", 5, id="a released message was started without a lease"),
    ],
)
def test_seeds_that_once_broke_the_order_now_pass(kind: str, seed: int) -> None:
    world = World(kind, seed)
    try:
        world.run()
    except AssertionError as error:
        pytest.fail(report(world, kind, seed, error))


def _never(order: GroupOrder, lease: Lease) -> bool:
    return False


def _until_its_delete_is_asked_for(order: GroupOrder, lease: Lease) -> bool:
    first = order.first(lease)
    return first is not None and first is not lease and first.goal is Goal.HOLD


def _nothing(self: object, lease: Lease) -> None:
    """Do nothing."""


_add, _end = GroupOrder.add, GroupOrder.end


def _add_unless_its_place_was_lost(order: GroupOrder, lease: Lease) -> None:
    if lease.has_place:
        _add(order, lease)


def _end_as_if_held(order: GroupOrder, lease: Lease, *, is_deleted: bool) -> None:
    if not is_deleted:
        order.stop_behind(lease)
    _end(order, lease, is_deleted=is_deleted)


@pytest.mark.parametrize(
    ("name", "broken", "kind", "seed", "said"),
    [
        # No message waits, in the worker's process and in the keeper's.
        ("waits_behind", _never, "calm-fifo", 0, "9: "),
        ("waits_behind", _never, "storm-fifo-apart", 0, "9: "),
        # The next starts when a delete is requested.
        ("waits_behind", _until_its_delete_is_asked_for, "calm-fifo-apart", 0, "9: "),
        # Nothing stops a group, in the worker's process and in the keeper's.
        ("stop_behind", _nothing, "calm-fifo", 3, "9: "),
        ("stop_behind", _nothing, "calm-fifo-apart", 2, "9: "),
        # A message received again has no place.
        ("add", _add_unless_its_place_was_lost, "calm-fifo", 60, "9: "),
        # A confirmed release stops later messages.
        ("end", _end_as_if_held, "calm-fifo", 39, "runs twice"),
    ],
)
def test_a_broken_order_is_found(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Callable[..., object],
    kind: str,
    seed: int,
    said: str,
) -> None:
    monkeypatch.setattr(GroupOrder, name, broken)
    with pytest.raises(Violation, match=said):
        World(kind, seed).run()


def test_messages_behind_one_that_is_left_to_sqs_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("celery_sqs_heartbeat.receiving.intake._NOT_OURS", ())
    with pytest.raises(Violation, match="9: "):
        World("storm-fifo", 0).run()


def test_stalled_groups_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "celery_sqs_heartbeat.receiving.group_waitlist.GroupWaitlist.take_due", lambda _: None
    )
    _, _, failure = simulate(HOURS, kinds=ORDERED)
    assert failure is not None
    assert "Violation: 9: groups are stalled" in failure
