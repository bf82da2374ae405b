"""Cases not covered by consumers that order the messages of one receive.

AWS's framework for .NET (SQSMessagePoller.ProcessInFifoMode) and Spring Cloud AWS
(MessageGroupingSinkAdapter) group the messages of one receive, and then forget the group. Neither
tests these cases.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.testing.errors import not_available
from tests.conformance.conftest import NewBench
from tests.conformance.group_bench import FIFO
from tests.conformance.network import SentCall, Trip


def test_a_running_message_that_is_received_again_is_still_the_first_of_its_group(
    new_bench: NewBench,
) -> None:
    """The machine stalls, and a second receive brings the group again, so it is there twice."""
    bench = new_bench(timeout=10)
    bench.send("1", takes=60)
    bench.send("2", "3")
    bench.run(until=1)
    bench.stall(20)
    bench.run(until=25)
    assert bench.message("1").receive_count == 2
    bench.run_until_empty()
    assert bench.started() == ["1", "2", "3"]


def test_messages_sent_meanwhile_run_after_those_that_wait(new_bench: NewBench) -> None:
    bench = new_bench(workers=2)
    bench.send("1", "2", "3")
    bench.run(until=1.5)
    bench.send("4")
    bench.run_until_empty()
    assert bench.started() == ["1", "2", "3", "4"]


def test_messages_behind_a_failed_one_wait_until_it_succeeds_on_any_worker(
    new_bench: NewBench,
) -> None:
    """It fails, and another worker receives it while the first one still holds those behind."""
    bench = new_bench(workers=2, fifo_batch=10, max_receive_count=50, timeout=600)
    bench.send("1", takes=3, fails=5)
    bench.send("2", "3", takes=3)
    bench.run_until_empty()
    assert bench.started() == ["1"] * 6 + ["2", "3"]


def test_groups_of_two_queues_are_two_groups_whatever_they_are_called(new_bench: NewBench) -> None:
    bench = new_bench(queues=(FIFO, "other.fifo"))
    bench.send("1", "2", takes=5)
    bench.run(until=1)
    # Their numbers are higher than those of the others.
    bench.send("3", "4", queue="other.fifo", takes=5)
    bench.run(until=3)
    assert bench.started() == ["1", "3"]


@pytest.mark.parametrize("lost", ["1", "2"])
def test_after_a_lost_lease_the_messages_behind_it_are_released(
    new_bench: NewBench, lost: str
) -> None:
    """The lease of a waiting or of the running message: SQS delivers its group again."""
    bench = new_bench(timeout=10, workers=2)
    bench.send("1", takes=30)
    bench.send("2", "3")

    def refuse(call: SentCall) -> Trip:
        is_early = call.at < 1009
        return Trip(refused={lost: not_available("h")} if is_early and _extends(call) else {})

    bench.through(refuse)
    bench.run(until=8.9)
    behind = [name for name in ("3", "2") if name > lost]
    assert [name for at, name in bench.asked("release") if at < 8.9] == behind
    bench.run_until_empty()
    assert [name for name in bench.started() if name != "1"] == ["2", "3"]
    assert bench.start_of("2") > bench.end_of("1")


@pytest.mark.parametrize("takes", [60, 97])
def test_a_message_that_waited_long_is_received_again_with_its_full_time(
    new_bench: NewBench, takes: float
) -> None:
    """A message's 12 hours, here 100 seconds, also count while it waits.

    After half of them it is no longer started. After nine tenths it no longer waits.
    """
    bench = new_bench(timeout=10, max_lease=100)
    bench.send("1", takes=takes)
    bench.send("2", takes=80)
    bench.run(until=takes)
    assert [name for at, name in bench.asked("release") if at < 95] == ["2"] * (takes > 90)
    bench.run_until_empty()
    assert bench.started() == bench.deletes == ["1", "2"]
    assert bench.message("2").receive_count == 2


def test_after_a_lost_connection_groups_are_released_last_message_first(
    new_bench: NewBench,
) -> None:
    bench = new_bench(timeout=600, workers=2)
    first, second = bench.workers
    bench.send("1", "2", "3", takes=20)
    bench.send("4", "5", group="B", takes=20)
    first.processes = second.processes = 0
    bench.run(until=1)
    holder = first if first.held() else second
    other = second if holder is first else first
    holder.lose_connection()
    bench.run(until=2)
    released = [name for _, name in bench.asked("release")]
    assert [name for name in released if name in "123"] == ["3", "2", "1"]
    assert [name for name in released if name in "45"] == ["5", "4"]
    other.processes = 4
    bench.run_until_empty()
    assert bench.started("A") == ["1", "2", "3"]


@pytest.mark.parametrize("end", ["failure", "lost lease", "refused delete", "shutdown"])
def test_whatever_stops_a_group_all_its_waiting_messages_are_released(
    new_bench: NewBench, end: str
) -> None:
    """InvokeHandler: an error in a group left the rest in the table, extended for 12 hours."""
    bench = new_bench(timeout=10)
    (worker,) = bench.workers
    bench.send("1", takes=8, fails=int(end == "failure"))
    bench.send("2", "3")
    action = {"lost lease": "extend", "refused delete": "delete"}.get(end)

    def refuse(call: SentCall) -> Trip:
        asked = {ask.action for ask in call.asks if ask.name == "1"}
        return Trip(refused={"1": not_available("h")} if action in asked else {})

    bench.through(refuse)
    bench.run(until=1)
    worker.is_receiving = False
    if end == "shutdown":
        bench.at(3, worker.shut_down)
    bench.run(until=60)
    assert bench.started() == ["1"]
    assert worker.held() == set()
    assert worker.waiting_for_their_group() == 0
    assert worker.slots_taken() == set()
    assert [name for _, name in bench.asked("release") if name != "1"] == ["3", "2"]
    assert all(at < 9 for at, _ in bench.asked("extend"))


def _extends(call: SentCall) -> bool:
    return any(ask.action == "extend" for ask in call.asks)
