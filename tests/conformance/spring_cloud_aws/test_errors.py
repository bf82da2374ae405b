"""What a failure does to its message group.

Source: awspring/spring-cloud-aws, SqsFifoIntegrationTests (stopsProcessingAfterException,
stopsProcessingAfterAckException), ImmediateRetryAsyncErrorHandler, ExponentialBackoffErrorHandler,
SqsAcknowledgementExecutor; issues 444 and 1415. And JaidenAshmore/java-dynamic-sqs-listener,
issue 369.

Left out: the callback with an acknowledgement's result, because our keeper repeats a delete.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.testing.errors import handle_expired, throttled
from tests.conformance.conftest import NewBench
from tests.conformance.network import SentCall, Trip

FIVE = ["0", "1", "2", "3", "4"]


def test_nothing_runs_behind_a_failure_until_it_has_succeeded(new_bench: NewBench) -> None:
    """stopsProcessingAfterException: of five, the fourth fails once. The others run once."""
    bench = new_bench(workers=2, timeout=3)
    bench.send("0", "1", "2")
    bench.send("3", fails=1)
    bench.send("4")
    bench.run_until_empty()
    assert bench.started() == ["0", "1", "2", "3", "3", "4"]
    assert [bench.message(name).receive_count for name in "012"] == [1, 1, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_group_does_not_wait_for_the_visibility_timeout_of_those_behind(
    new_bench: NewBench, workers: int
) -> None:
    """Issue 1415: the rest of a full batch stalls the group for 15 minutes. Here nothing does."""
    bench = new_bench(workers=workers, timeout=900, fifo_batch=10, max_receive_count=100)
    bench.send("0", fails=1)
    bench.send(*(str(number) for number in range(1, 10)))
    bench.run_until_empty()
    assert bench.start_of("0", nth=1) - 1.0 < 1
    assert bench.start_of("1") - bench.end_of("0") < 1
    assert bench.ended() == [str(number) for number in range(10)]


@pytest.mark.parametrize("delay", [1, 5])
def test_a_group_waits_for_the_delay_of_the_failed_one_alone(
    new_bench: NewBench, delay: int
) -> None:
    """ImmediateRetryAsyncErrorHandler, ExponentialBackoffErrorHandler.

    There the group then also waits for the visibility timeouts of the others.
    """
    bench = new_bench(timeout=600, release_delay=delay)
    bench.send("0", fails=1)
    bench.send("1", "2")
    bench.run_until_empty()
    assert delay <= bench.start_of("0", nth=1) - 1.0 < delay + 1
    assert bench.start_of("1") - bench.end_of("0") < 1
    assert bench.ended() == ["0", "1", "2"]


def test_another_worker_is_offered_the_failed_one_first(new_bench: NewBench) -> None:
    """Issue 444, 7 July 2022: messages held behind a failed one break the order if they run.

    Whatever worker receives it, the other one does not run the messages that it held.
    """
    bench = new_bench(workers=2, processes=1, prefetch=1, timeout=600)
    bench.send("0", fails=3)
    bench.send("1", "2", "3")
    bench.run_until_empty()
    assert bench.started() == ["0"] * 4 + ["1", "2", "3"]


def test_a_message_behind_one_that_always_fails_is_run_and_no_dead_letter(
    new_bench: NewBench,
) -> None:
    """JaidenAshmore's issue 369, Spring's 444, 11 July 2022: three receives bury both."""
    bench = new_bench(max_receive_count=3, timeout=600)
    bench.send("bad", fails=100)
    bench.send("good", "better")
    bench.run_until_empty()
    assert bench.buried() == ["bad"]
    assert bench.started() == ["bad"] * 3 + ["good", "better"]
    assert [bench.message(name).receive_count for name in ("good", "better")] == [1, 1]


def test_no_receives_are_spent_on_messages_behind_a_failure(new_bench: NewBench) -> None:
    """The same without a limit of receives: by default, messages are received one by one."""
    bench = new_bench(timeout=30, fifo_batch=1)
    bench.send("0", fails=6)
    bench.send("1", "2")
    bench.run_until_empty()
    assert bench.message("0").receive_count == 7
    assert [bench.message(name).receive_count for name in "12"] == [1, 1]


def test_a_delete_that_is_refused_stops_its_group(new_bench: NewBench) -> None:
    """stopsProcessingAfterAckException. AWS's framework for .NET continues.

    There the handler runs again. Here the message is deleted when it comes again, and not run.
    """
    bench = new_bench(timeout=10)
    bench.send(*FIVE)

    def refuse(call: SentCall) -> Trip:
        is_early = call.at < 1008
        return Trip(refused={"3": handle_expired("h")} if is_early and _deletes(call) else {})

    bench.through(refuse)
    bench.run(until=8)
    assert bench.started() == ["0", "1", "2", "3"]
    assert bench.workers[0].held() == set()
    bench.run_until_empty()
    assert bench.started() == bench.deletes == FIVE
    assert bench.message("3").receive_count == 2


@pytest.mark.parametrize("extent", ["one entry", "whole calls"])
def test_a_delete_that_fails_delays_only_its_own_group(new_bench: NewBench, extent: str) -> None:
    """SqsAcknowledgementExecutor: an answer 200 with `Failed`, or none at all.

    The delete is repeated, and the group waits for it. None of its tasks runs twice.
    """
    bench = new_bench()
    bench.send("0", "1")
    bench.send("2", "3", group="B")

    def fail(call: SentCall) -> Trip:
        if call.at > 1006 or not _deletes(call) or "0" not in call.names:
            return Trip()
        one = extent == "one entry"
        return Trip(refused={"0": throttled()}) if one else Trip(error=throttled())

    bench.through(fail)
    bench.run(until=5)
    assert "1" not in bench.started()
    bench.run_until_empty()
    assert bench.started("A") == ["0", "1"]
    assert bench.start_of("1") > 6
    if extent == "one entry":
        assert bench.start_of("3") < 3


def _deletes(call: SentCall) -> bool:
    return any(ask.action == "delete" for ask in call.asks)
