"""A message that waits for another of its group is held, and no other.

Source: awspring/spring-cloud-aws, SqsFifoIntegrationTests
(visibilityTimeoutExtensionWorksForFifoBatch), MessageVisibilityExtendingSinkAdapter; issues 196 and
1430 (an equality that did not hold removed handled messages; our leases use the message id).
"""

from __future__ import annotations

from celery_sqs_heartbeat.leases.calls import Outcome
from tests.conformance.conftest import NewBench

TEN = tuple(f"m{number}" for number in range(10))


def test_waiting_messages_are_extended_and_deleted_ones_are_not(new_bench: NewBench) -> None:
    """visibilityTimeoutExtensionWorksForFifoBatch: ten of a group, visibility timeout 5 s.

    There the rest is extended before each message, and never while one is handled.
    """
    bench = new_bench(timeout=5)
    bench.send(*TEN, takes=4)
    bench.run_until_empty()
    deleted_at = {name: at for at, name in bench.asked("delete")}
    assert all(at < deleted_at[name] for at, name in bench.asked("extend"))
    assert {outcome for call in bench.calls for outcome in call.outcomes} == {Outcome.DONE}
    assert [bench.message(name).receive_count for name in TEN] == [1] * 10


def test_waiting_messages_are_extended_during_a_long_task(new_bench: NewBench) -> None:
    """Issue 196: with slow handlers, waiting messages came twice, with expired handles."""
    bench = new_bench(timeout=2)
    bench.send("first", takes=60)
    bench.send("second", "third", takes=10)
    bench.run_until_empty()
    assert bench.started() == ["first", "second", "third"]
    assert len([at for at, name in bench.asked("extend") if name == "third"]) > 40
    assert bench.message("third").receive_count == 1
