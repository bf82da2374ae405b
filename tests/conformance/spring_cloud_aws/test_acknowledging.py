"""Deletes in order, and at the end of a worker.

Source: awspring/spring-cloud-aws, BatchingAcknowledgementProcessorTests (it sends what is buffered
before its end), AbstractOrderingAcknowledgementProcessor, ImmediateAcknowledgementProcessorTests.
"""

from __future__ import annotations

import random

import pytest

from celery_sqs_heartbeat.testing.errors import throttled
from tests.conformance.conftest import NewBench
from tests.conformance.network import SentCall, Trip

TENS = {str(group): [f"{group}-{number}" for number in range(10)] for group in range(10)}


def test_deletes_of_each_group_are_confirmed_in_order(new_bench: NewBench) -> None:
    """shouldAcknowledgeOrderedByGroupFromManyMessageGroups: each takes 0 to 10 ms, or 0 to 1 s."""
    delays = random.Random(5)
    bench = new_bench(processes=10, prefetch=40)
    bench.through(lambda call: Trip(there=delays.choice((0.01, 1.0)) * delays.random()))
    for group, names in TENS.items():
        bench.send(*names, group=group, takes=0.05)
    bench.run_until_empty()
    for group, names in TENS.items():
        assert bench.started(group) == bench.deleted(group) == names
    # Side by side, not one group after another.
    assert bench.deletes != sorted(bench.deletes)


def test_a_group_whose_delete_fails_does_not_delay_the_others(new_bench: NewBench) -> None:
    """shouldRecoverFromErrorInOrder: one of ten fails. shouldPropagateErrorForOrderedByGroup."""
    bench = new_bench(processes=10, prefetch=40)
    for group, names in TENS.items():
        bench.send(*names, group=group, takes=0.1)
    refused = {"4-3": throttled()}
    bench.through(lambda call: Trip(refused=refused) if call.at < 1020 else Trip())
    bench.run(until=19)
    assert bench.ended("4") == TENS["4"][:4]
    assert len(bench.deletes) == 93
    bench.run_until_empty()
    for group, names in TENS.items():
        assert bench.started(group) == bench.deleted(group) == names


@pytest.mark.parametrize("back", [0.0, 0.5, 5.0])
def test_a_delete_that_is_confirmed_during_a_shutdown_starts_nothing(
    new_bench: NewBench, back: float
) -> None:
    """onAcknowledge while not running: there it counts as done, and the next is handled.

    Here waiting messages are released when the shutdown begins, the last one first, and deletes
    under way are confirmed.
    """
    bench = new_bench(timeout=600)
    bench.send("1", "2", "3", "4")
    bench.through(lambda call: Trip(back=back if "delete" in _actions(call) else 0.0))
    bench.run(until=1.1)
    assert bench.ended() == ["1"]
    bench.workers[0].shut_down()
    bench.run(until=10)
    # The second had begun if the answer was fast.
    begun = ["1", "2"][: 1 if back else 2]
    assert bench.started() == bench.deletes == begun
    released = [name for _, name in bench.asked("release")]
    assert released == [name for name in ("4", "3", "2") if name not in begun]


def test_a_task_that_runs_as_a_shutdown_begins_is_deleted_when_it_ends(new_bench: NewBench) -> None:
    """whenStopped: buffered deletes are sent before the end. Ours follow the releases.

    Extending continues until then. There, and in AWS's framework for .NET, it ends before.
    """
    bench = new_bench(timeout=2, workers=2)
    first, second = bench.workers
    second.is_receiving = False
    bench.send("1", takes=10)
    bench.send("2", "3")
    bench.run(until=1)
    first.shut_down()
    bench.run(until=1.5)
    assert [name for _, name in bench.asked("release")] == ["3", "2"]
    assert first.held() == {bench.message("1").message_id}
    second.is_receiving = True
    bench.run_until_empty()
    assert bench.started() == bench.deletes == ["1", "2", "3"]
    assert bench.message("1").receive_count == 1


def _actions(call: SentCall) -> set[str]:
    return {ask.action for ask in call.asks}
