"""What is left open by consumers that order the messages of one receive.

AWS's framework for .NET (SQSMessagePoller.ProcessInFifoMode) and Spring Cloud AWS
(MessageGroupingSinkAdapter) group what one receive brings, and forget the group with it. Neither
tests what is here.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.testing.errors import not_available
from tests.conformance.conftest import NewBench
from tests.conformance.group_bench import FIFO
from tests.conformance.network import SentCall, Trip


def test_one_that_comes_again_while_it_runs_is_the_first_of_its_group_still(
    new_bench: NewBench,
) -> None:
    """The machine stands still, and a second receive brings the group again: two rows of it."""
    bench = new_bench(timeout=10)
    bench.send("1", takes=60)
    bench.send("2", "3")
    bench.run(until=1)
    bench.stand_still(20)
    bench.run(until=25)
    assert bench.message("1").receive_count == 2
    bench.run_until_empty()
    assert bench.started() == ["1", "2", "3"]


def test_what_is_sent_meanwhile_comes_after_what_waits(new_bench: NewBench) -> None:
    bench = new_bench(workers=2)
    bench.send("1", "2", "3")
    bench.run(until=1.5)
    bench.send("4")
    bench.run_until_empty()
    assert bench.started() == ["1", "2", "3", "4"]


def test_what_waits_is_not_run_by_another_worker_than_the_failed_one(new_bench: NewBench) -> None:
    """It fails, and another worker gets it; the first one still held those behind."""
    bench = new_bench(workers=2, fifo_batch=10, max_receive_count=50, timeout=600)
    bench.send("1", takes=3, fails=5)
    bench.send("2", "3", takes=3)
    bench.run_until_empty()
    assert bench.started() == ["1"] * 6 + ["2", "3"]


def test_groups_of_two_queues_are_two_groups_whatever_they_are_called(new_bench: NewBench) -> None:
    bench = new_bench(queues=(FIFO, "other.fifo"))
    bench.send("1", "2", takes=5)
    bench.run(until=1)
    # Behind the others by their numbers.
    bench.send("3", "4", queue="other.fifo", takes=5)
    bench.run(until=3)
    assert bench.started() == ["1", "3"]


@pytest.mark.parametrize("lost", ["1", "2"])
def test_a_lost_lease_takes_along_what_is_behind_it(new_bench: NewBench, lost: str) -> None:
    """That of one that waits, or of the one that runs: SQS hands out its group anew."""
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
def test_what_has_waited_long_is_received_anew_with_all_of_its_time(
    new_bench: NewBench, takes: float
) -> None:
    """The 12 hours of a message count while it waits, too; here there are 100 seconds.

    From half of them on it is not started any more, at nine tenths it does not wait any more.
    """
    bench = new_bench(timeout=10, max_lease=100)
    bench.send("1", takes=takes)
    bench.send("2", takes=80)
    bench.run(until=takes)
    assert [name for at, name in bench.asked("release") if at < 95] == ["2"] * (takes > 90)
    bench.run_until_empty()
    assert bench.started() == bench.deletes == ["1", "2"]
    assert bench.message("2").receive_count == 2


def test_a_lost_connection_gives_groups_back_from_their_ends(new_bench: NewBench) -> None:
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
def test_whatever_ends_a_row_lets_go_of_all_of_it(new_bench: NewBench, end: str) -> None:
    """InvokeHandler: an error amid a group left the rest in the table, extended for 12 hours."""
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
    assert len(worker.heartbeat.groups) == 0
    assert worker.slots_taken() == set()
    assert [name for _, name in bench.asked("release") if name != "1"] == ["3", "2"]
    assert all(at < 9 for at, _ in bench.asked("extend"))


def _extends(call: SentCall) -> bool:
    return any(ask.action == "extend" for ask in call.asks)
