"""Many simulated hours in which no invariant may break."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.leases.received_as import ReceivedAs, StaleCalls
from tests.simulation.__main__ import report, simulate
from tests.simulation.faults import Holding
from tests.simulation.profile import APART, KINDS, MET, ORDERED, WITHIN, meets
from tests.simulation.test_planted import OFTEN
from tests.simulation.truth import Receives
from tests.simulation.world import World

#: `make simulate HOURS=...` runs more.
MANY_HOURS = 600


#: Worlds that are soon over, and together meet every kind of trouble.
WORLDS = [
    ("calm", 184),
    ("storm", 1),
    ("storm", 195),
    ("calm-apart", 64),
    ("storm-apart", 0),
    ("storm-apart", 2),
    ("storm-apart", 165),
    ("calm-fifo", 0),
    ("storm-fifo", 0),
    ("calm-fifo-apart", 0),
    ("storm-fifo-apart", 356),
    ("calm-fifo", 253),
]
#: These once broke an invariant: a message received again while its delete failed had no place in
#: its group; a confirmed release released later messages; a released message was started without a
#: lease.
LONG_WORLDS = [("calm-fifo", 31), ("calm-fifo-apart", 38), ("storm-fifo-apart", 5)]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [*WORLDS, *(pytest.param(*each, marks=pytest.mark.thorough) for each in LONG_WORLDS)],
)
def test_no_invariant_breaks(kind: str, seed: int) -> None:
    world = World(kind, seed)
    try:
        world.run()
    except Exception as error:
        pytest.fail(report(world, kind, seed, error))


def test_the_worlds_of_each_run_are_of_every_kind() -> None:
    assert {kind for kind, _ in WORLDS} == {*KINDS}
    assert {each for each in MET if any(meets(seed, each) for _, seed in WORLDS)} == {*MET}


@pytest.mark.thorough
def test_no_invariant_breaks_if_a_redelivery_overtakes_its_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is rare: a keeper skips one redelivery of a message whose release is not answered.

    Here it skips none, and the server holds calls more often. If this seed no longer shows it, use
    another.
    """
    monkeypatch.setattr(StaleCalls, "spare", lambda *_: False)
    monkeypatch.setattr(Holding, "TIMES", OFTEN)
    tally = World("storm-apart", 57).run()
    assert tally.disturbances["a redelivery overtakes its release"]


@pytest.mark.thorough
def test_no_invariant_breaks_in_hundreds_of_worker_hours() -> None:
    tally, _, failure = simulate(MANY_HOURS, kinds=WITHIN + APART)
    assert failure is None, failure
    assert tally.worker_hours >= MANY_HOURS
    # A simulation without faults proves nothing.
    assert tally.overlaps > 20
    assert tally.disturbances["has another visibility timeout"] > 10
    assert tally.disturbances["loses a task's end"] > 20
    assert tally.disturbances["a call of a queue that hangs"] > 100
    assert {"worker died", "pause", "suspend", "capped", "stale handle", "twice"} <= {*tally.causes}
    refused = ["a permission is missing", "the queue is hidden"]
    refused += [f"{each}, of deletes" for each in refused]
    assert {
        *(f"{each} for a while" for each in refused),
        *(f"poll not answered: {what}" for what in ("its request", "its answer", "late")),
        *(f"its keeper is killed at a {what}" for what in ("step", "release")),
        "a call is never answered",
        "a call is answered late",
        "its connections are forgotten",
        "a redelivery overtakes its extend",
        "starts while the server is stalled",
        "last poll brings a message",
        "its link is slow",
        "its interpreter stalls",
        "its keeper hangs",
    } <= {*tally.disturbances}


@pytest.mark.thorough
def test_no_message_begins_too_early_in_hundreds_of_worker_hours() -> None:
    tally, _, failure = simulate(MANY_HOURS, kinds=ORDERED)
    assert failure is None, failure
    assert {"worker died", "pause", "suspend", "capped"} <= {*tally.causes}
    assert "drops a message that no extension confirmed" in tally.disturbances
    assert tally.disturbances["keeper dies"] > 10


def test_one_seed_reproduces_everything() -> None:
    first, second = World("storm-apart", 165), World("storm-apart", 165)
    assert first.run() == second.run()
    assert list(first.trace) == list(second.trace)


def test_a_failure_names_its_message_and_how_to_reproduce_it() -> None:
    world = World("calm-fifo", 0)
    world.run()
    message_id = next(named for _, _, what, named in reversed(world.trace) if what == "begins")
    text = report(world, "calm-fifo", 0, AssertionError(f"2: {message_id} runs again"))
    assert "Replay it: python -m tests.simulation --replay calm-fifo 0" in text
    assert f"2: {message_id[:8]} runs again" in text
    assert f"begins                   {message_id[:8]}" in text


@pytest.mark.parametrize(
    ("said", "causes"),
    [
        pytest.param(
            [(1, GROUP_STOPPED, False), (2, "not delivered", False)],
            [GROUP_STOPPED, "not delivered"],
            id="each receive has its own",
        ),
        pytest.param(
            [(1, "keeper died", True), (1, "released", False)],
            ["released"],
            id="a guess is replaced",
        ),
        pytest.param(
            [(1, "released", False), (1, "worker died", True)], ["released"], id="not by a guess"
        ),
    ],
)
def test_a_receive_keeps_the_first_cause_that_is_certain(
    said: list[tuple[int, str, bool]], causes: list[str]
) -> None:
    truths: Any = defaultdict(lambda: SimpleNamespace(receives={}))
    receives = Receives(Mock(truth=truths))
    for number, cause, is_guess in said:
        message = {"MessageId": "m", "ReceiptHandle": str(number)}
        if str(number) not in truths["m"].receives:
            receives.note_answer(message)
            receives.note_arrival(message, "w0", ReceivedAs.NEW)
        receives.explain("m", "w0", cause, is_guess=is_guess)
    assert [each.cause for each in truths["m"].receives.values()] == causes
