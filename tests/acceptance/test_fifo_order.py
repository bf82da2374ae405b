"""Message groups of a FIFO queue, on real workers that run several tasks at a time."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import celery
import pytest

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.ordered import Orders, overlaps, steps
from tests.acceptance.scene import StartWorker
from tests.acceptance.test_operating import ask
from tests.support.waiting import wait_until

GROUPS = ("a", "b", "c", "d", "e")
EACH = 8
#: Longer than a test waits: a message becomes visible again only when it is released.
LONG = {"VisibilityTimeout": "600"}

#: A pool whose processes inherit nothing.
SPAWN = [("spawn", True)] if celery.VERSION >= (5, 7) else []


@pytest.fixture
def new_orders(start_worker: StartWorker, tmp_path: Path) -> Iterator[Callable[..., Orders]]:
    with SimulatedServer() as server:
        yield lambda attributes=LONG: Orders(
            server=server,
            start=start_worker,
            ledger=tmp_path / "ordered.ledger",
            attributes=attributes,
        )


def assert_all_in_order(orders: Orders, groups: Sequence[str], each: int) -> None:
    """Wait until so many steps of each group are done, each in its turn, and none is left."""
    orders.wait_for_ends(len(groups) * each)
    assert overlaps(orders.lines()) == []
    assert orders.ends() == {group: list(range(each)) for group in groups}
    orders.wait_until_empty()


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "eventlet", "solo"])
def test_each_group_runs_in_order_on_two_workers_of_four_tasks_at_a_time(
    new_orders: Callable[..., Orders], pool: str
) -> None:
    orders = new_orders()
    for group, number in steps(GROUPS, EACH):
        orders.send(group, number)
    orders.two_workers("--pool", pool, "--concurrency", "4")
    assert_all_in_order(orders, GROUPS, EACH)


def test_in_parallel_messages_of_a_group_run_side_by_side(
    new_orders: Callable[..., Orders],
) -> None:
    orders = new_orders()
    for number in range(4):
        orders.send("a", number, first="hold")
    orders.worker("w1", "--concurrency", "4", sqs_heartbeat_fifo="parallel")
    orders.wait_for_lines(4)
    assert [line.what for line in orders.lines()] == ["start"] * 4
    for number in range(4):
        orders.let_end("a", number)
    orders.wait_for_ends(4)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_failure_stops_its_group_until_its_message_has_come_again(
    new_orders: Callable[..., Orders], pool: str
) -> None:
    orders = new_orders()
    for group, number in steps(GROUPS, EACH):
        orders.send(group, number, first="fail" if number in (0, 3) else "")
    orders.two_workers("--pool", pool, "--concurrency", "4")
    assert_all_in_order(orders, GROUPS, EACH)


def test_a_worker_that_shuts_down_releases_the_messages_that_wait(
    new_orders: Callable[..., Orders],
) -> None:
    orders = new_orders()
    for number in range(EACH):
        orders.send("a", number, first="hold" if number == 0 else "")
    first = orders.worker("w1", "--concurrency", "4", sqs_heartbeat_fifo_batch=10)
    orders.wait_for_lines(1)
    os.kill(first.pid, signal.SIGTERM)
    wait_until(lambda: orders.counts() == (EACH - 1, 1))
    orders.let_end("a", 0)
    orders.worker("w2", "--concurrency", "4")
    assert first.wait_for_exit() == 0
    orders.wait_for_ends(EACH)
    assert overlaps(orders.lines()) == []
    assert [line.worker for line in orders.lines() if line.what == "end"] == ["w1", *["w2"] * 7]
    orders.wait_until_empty()


@pytest.mark.parametrize(
    ("pool", "wrap"),
    [("prefork", False), ("threads", False), ("prefork", True), ("threads", True), *SPAWN],
)
def test_a_retry_comes_before_the_rest_of_its_group(
    new_orders: Callable[..., Orders], pool: str, wrap: bool
) -> None:
    orders = new_orders()
    for number in range(4):
        orders.send("a", number, first="retry" if number == 1 else "")
    conf = {"worker_pool_start_method": "spawn"} if pool == "spawn" else {}
    name = "prefork" if conf else pool
    orders.two_workers("--pool", name, "--concurrency", "2", wrap=wrap, **conf)
    assert_all_in_order(orders, ["a"], 4)
    assert [line.what for line in orders.lines() if line.number == 1] == [
        "start",
        "retry",
        "start",
        "retries-1",
        "in-a",
        "end",
    ]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("how", ["asked", "caught", "caught-and-failed"])
def test_a_task_that_continues_after_it_called_retry_is_retried_in_order(
    new_orders: Callable[..., Orders], pool: str, how: str
) -> None:
    orders = new_orders()
    for number in range(3):
        orders.send("a", number, first=how if number == 1 else "")
    orders.two_workers("--pool", pool, "--concurrency", "4")
    orders.wait_for_ends(3)
    orders.wait_until_empty()
    goes_on = [] if how == "caught-and-failed" else ["1 end"]
    assert [f"{line.number} {line.what}" for line in orders.lines()] == [
        *("0 start", "0 end"),
        *("1 start", f"1 {how}", *goes_on),
        *("1 start", "1 retries-1", "1 in-a", "1 end"),
        *("2 start", "2 end"),
    ]


@pytest.mark.parametrize(("how", "conf"), [("changed", "release"), ("behind", "send")])
def test_a_retry_as_a_new_message_goes_to_the_end_of_its_own_group(
    new_orders: Callable[..., Orders], how: str, conf: str
) -> None:
    orders = new_orders()
    for number in range(3):
        orders.send("a", number, first=how if number == 1 else "")
    worker = orders.worker("w1", "--concurrency", "4", sqs_heartbeat_fifo_retry=conf)
    orders.wait_for_ends(3)
    orders.wait_until_empty()
    assert [line.number for line in orders.lines() if line.what == "end"] == [0, 2, 1]
    assert "in-a" in [line.what for line in orders.lines()]
    warning = "is sent as a new message, which goes to the end of its message group"
    assert (warning in worker.logs()) is (conf == "release")


@pytest.mark.between
def test_a_chord_waits_behind_its_header_in_their_group(
    new_orders: Callable[..., Orders], tmp_path: Path
) -> None:
    orders = new_orders()
    results = f"file://{tmp_path}"
    orders.send_chord(3, results)
    worker = orders.worker("w1", "--concurrency", "2", result_backend=results)
    orders.wait_for_lines(4)
    orders.wait_until_empty()
    assert [f"{line.number} {line.what}" for line in orders.lines()] == [
        *("1 end", "2 end", "3 end"),
        "6 total",
    ]
    assert "is sent as a new message" not in worker.logs()


def test_no_number_of_retries_that_a_sender_gives_ends_a_worker(
    new_orders: Callable[..., Orders],
) -> None:
    orders = new_orders()
    given = ["x", [1], {"a": 1}, -1, 1.5, True, None]
    for number, retries in enumerate(given):
        orders.send(f"g{number}", 0, retries=retries)
    orders.worker("w1", "--concurrency", "2")
    orders.wait_for_ends(len(given))
    orders.wait_until_empty()


def test_a_group_that_a_failure_has_stopped_is_shown_with_what_waits(
    new_orders: Callable[..., Orders],
) -> None:
    orders = new_orders()
    for number in range(3):
        orders.send("a", number, first="hold" if number == 0 else "")
    for number in range(3):
        orders.send("b", number, first="fail" if number == 0 else "")
    conf = {
        "sqs_heartbeat_status": "127.0.0.1:0",
        "sqs_heartbeat_release_delay": 120,
        "sqs_heartbeat_fifo_batch": 10,
    }
    worker = orders.worker("w1", "--concurrency", "2", **conf)

    def shown() -> dict[str, Any]:
        leases: dict[str, Any] = json.loads(ask(worker, "/leases"))
        return leases

    def is_stopped() -> bool:
        leases = shown()
        is_over = leases["stopped_groups"] and not leases["pending_releases"]
        return bool(is_over) and leases["running"] == 1

    wait_until(is_stopped)
    leases = shown()
    assert (leases["groups"], leases["behind"], leases["running"]) == (1, 2, 1)
    (stopped,) = leases["stopped_groups"]
    assert (stopped["group"], stopped["cause"], stopped["task"]) == (
        "b",
        "failed",
        "tests.acceptance.ordered.step",
    )
    assert 0 < stopped["visible_in"] <= 120
    stops = 'sqs_heartbeat_group_stops_total{cause="failed",queue="orders.fifo"} 1.0'
    assert stops in ask(worker, "/metrics")
    worker.wait_for_log("and the rest of its group waits for it")
    logged = re.search(r"group b of \S+ stopped .* becomes visible in (\d+) s", worker.logs())
    assert logged, worker.logs()
    assert 0 < int(logged[1]) <= 120


@pytest.mark.parametrize("how", ["fail", "reject"])
def test_a_group_that_waits_for_a_visibility_timeout_is_shown_too(
    new_orders: Callable[..., Orders], how: str
) -> None:
    orders = new_orders()
    orders.with_dead_letters(4)
    for number in range(2):
        orders.send("a", number, first=how if number == 0 else "")
    conf = {"sqs_heartbeat_status": "127.0.0.1:0", "sqs_heartbeat_release_delay": "keep"}
    worker = orders.worker("w1", "--concurrency", "2", **conf)
    worker.wait_for_log(
        "becomes visible when its visibility timeout expires, and the rest of its group"
    )
    (stopped,) = json.loads(ask(worker, "/leases"))["stopped_groups"]
    assert (stopped["group"], stopped["cause"]) == ("a", "kept")
    assert stopped["visible_in"] > 0
    lapses = 'sqs_heartbeat_lapses_total{cause="kept",queue="orders.fifo"} 1.0'
    assert lapses in ask(worker, "/metrics")


@pytest.mark.parametrize("batch", [1, 10])
def test_a_group_with_a_backlog_delays_no_other_group(
    new_orders: Callable[..., Orders], batch: int
) -> None:
    orders = new_orders()
    for number in range(EACH * 2):
        orders.send("long", number, first="hold" if number == 0 else "")
    for group, number in steps(("b", "c", "d"), 2):
        orders.send(group, number)
    orders.worker(
        "w1", "--concurrency", "2", "--prefetch-multiplier", "1", sqs_heartbeat_fifo_batch=batch
    )
    # The long group keeps one slot. The other groups use the other slot.
    orders.wait_for_ends(6)
    orders.let_end("long", 0)
    orders.wait_for_ends(EACH * 2 + 6)
    assert overlaps(orders.lines()) == []
    orders.wait_until_empty()


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_messages_that_wait_in_the_worker_run_in_order_and_are_released_with_one_that_fails(
    new_orders: Callable[..., Orders], pool: str
) -> None:
    orders = new_orders()
    for group, number in steps(GROUPS, EACH):
        orders.send(group, number, first="fail" if number == 3 else "")
    orders.two_workers("--pool", pool, "--concurrency", "4", sqs_heartbeat_fifo_batch=10)
    assert_all_in_order(orders, GROUPS, EACH)
