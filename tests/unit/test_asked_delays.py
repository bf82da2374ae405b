"""The delay that a task requests reaches its worker, from any process that runs the task."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat import NoLease, current_lease
from celery_sqs_heartbeat.current.current_message import (
    ask_for_retry,
    asked_delay,
    asked_retry,
    read_delay,
    write_delay,
)
from celery_sqs_heartbeat.current.sharing import shared_table, unshare_table
from celery_sqs_heartbeat.current.table import SLOT_BYTES, key_of
from tests.unit.asking import Worker, why_not


def ask(worker: Worker, delay: Any) -> None:
    def run() -> None:
        current_lease.release_delay = delay

    worker.run(run)


def test_a_task_and_its_worker_read_the_delay_that_the_task_has_set(worker: Worker) -> None:
    assert worker.run(lambda: current_lease.release_delay) is None
    assert asked_delay("a") is None
    for delay in (90, 0.5, 0, 10**6):
        ask(worker, delay)
        assert worker.run(lambda: current_lease.release_delay) == delay
        assert asked_delay("a") == delay
    # Changes of the lease do not change it.
    worker.change(expires_at=5_000)
    assert asked_delay("a") == 10**6
    assert worker.run(lambda: current_lease.remaining()) > 20
    ask(worker, None)
    assert worker.run(lambda: current_lease.release_delay) is None
    assert asked_delay("a") is None


def test_a_task_may_request_both_a_retry_and_a_delay(worker: Worker) -> None:
    assert asked_retry("a") is None
    ask(worker, 90)
    assert ask_for_retry("a", 1_000)
    assert asked_delay("a") == 90
    ask(worker, 50)
    retry = asked_retry("a")
    assert retry is not None
    assert 900 < retry <= 1_000
    assert ask_for_retry("a", -5)
    assert asked_retry("a") == 0
    assert asked_delay("a") == 50


def test_a_retry_without_a_place_in_the_table_does_not_count_as_noted(worker: Worker) -> None:
    assert not ask_for_retry("unknown", 5)
    assert asked_retry("unknown") is None
    unshare_table()
    assert not ask_for_retry("a", 5)
    assert asked_retry("a") is None


def test_without_a_lease_no_delay_can_be_set(worker: Worker) -> None:
    def set_it() -> None:
        current_lease.release_delay = 90

    assert "no worker runs a task here" in why_not(set_it)
    assert "no worker runs a task here" in why_not(lambda: current_lease.release_delay)
    with pytest.raises(NoLease, match="acks_late=False"):
        worker.run(set_it, acks_late=False)
    unshare_table()
    assert asked_delay("a") is None


def test_a_message_does_not_inherit_the_delay_of_the_previous_one_in_its_place(
    worker: Worker,
) -> None:
    ask(worker, 90)
    table = shared_table()
    place = table.place_of(key_of("a"))
    assert place is not None
    record = table.read(key_of("a"))
    table.write(place, key_of("b"), record)
    assert read_delay(table, "b") is None
    # Nor is anything written for a message that no longer has a place.
    write_delay(table, "a", 5)
    assert read_delay(table, "b") is None


@pytest.mark.parametrize("at", range(SLOT_BYTES))
def test_a_delay_that_a_killed_task_wrote_halfway_does_not_count(worker: Worker, at: int) -> None:
    ask(worker, 90)
    table = shared_table()
    place = table.place_of(key_of("a"))
    assert place is not None
    before = table.slot(place)
    ask(worker, 1e300)
    whole = table.slot(place)
    torn = whole[:at] + before[at:]
    table.write_slot(place, torn)
    assert asked_delay("a") in ((90, None) if torn != whole else (1e300,))
