"""Message groups from their receive to the delete of the last.

Source: aws/aws-dotnet-messaging, test/AWS.Messaging.UnitTests/DefaultMessageManagerTests.cs,
test/AWS.Messaging.IntegrationTests/FifoSubscriberTests.cs and LambdaTests.cs.

Real workers run the durations and numbers of processes, unreadable messages and unknown tasks, in
tests/acceptance/test_fifo_scenarios.py. Left out: rethrown signature exceptions (Celery has no such
check), and reports of failed items to Lambda, except for their order.
"""

from __future__ import annotations

import logging

import pytest

from tests.conformance.conftest import NewBench

FIVE = ("1", "2", "3", "4", "5")


def test_groups_run_side_by_side_and_each_in_its_order(new_bench: NewBench) -> None:
    """DefaultMessageManager_ProcessMessageGroup: handlers of 3 s, visibility timeout 2 s."""
    bench = new_bench(timeout=2)
    bench.send("1", "2", takes=3)
    bench.send("3", "4", group="B", takes=3)
    bench.run_until_empty()
    assert [bench.started("A"), bench.started("B")] == [["1", "2"], ["3", "4"]]
    assert bench.start_of("1") == bench.start_of("3")
    assert sorted(bench.deletes) == ["1", "2", "3", "4"]
    assert [bench.message(name).receive_count for name in "1234"] == [1] * 4
    # Those that wait, too.
    assert {"2", "4"} <= {name for at, name in bench.asked("extend") if at < 3}


@pytest.mark.parametrize("processes", [1, 5, 10])
def test_a_receive_may_mix_the_groups(new_bench: NewBench, processes: int) -> None:
    """LambdaTests.FifoMessageHandling_MultipleMessageGroups: B1 A1 A2 B2 A3 B3, later ones faster.

    ProcessFifoLambdaEventsAsync_Success is the same with others of one group and of three.
    """
    bench = new_bench(processes=processes)
    bench.change_answer = lambda answer: answer.get("Messages", []).sort(
        key=lambda message: "B1A1A2B2A3B3".index(bench.name_of(message))
    )
    for number, takes in ((1, 3.0), (2, 2.0), (3, 1.0)):
        for group in "AB":
            bench.send(f"{group}{number}", group=group, takes=takes)
    bench.run_until_empty()
    assert bench.ended("A") == bench.deleted("A") == ["A1", "A2", "A3"]
    assert bench.ended("B") == bench.deleted("B") == ["B1", "B2", "B3"]


def test_a_group_counts_once_against_the_workers_limit(new_bench: NewBench) -> None:
    """DefaultMessageManager: a group is one active message, and the poller reads on."""
    bench = new_bench(processes=2, prefetch=2)
    bench.send(*(f"A{number}" for number in range(10)), takes=30)
    bench.send("B0", group="B")
    bench.run(until=1)
    assert bench.started() == ["A0", "B0"]


def test_messages_behind_a_failure_do_not_run_before_it(new_bench: NewBench) -> None:
    """DefaultMessageManager_MessageGroupIsSkipped: the third of five fails.

    There the three are received again after their visibility timeout, here at once.
    """
    bench = new_bench(timeout=900)
    bench.send("1", "2")
    bench.send("3", fails=1)
    bench.send("4", "5")
    bench.run_until_empty()
    assert bench.started() == ["1", "2", "3", "3", "4", "5"]
    assert bench.ended() == list(FIVE)
    assert bench.now < 20


def test_messages_behind_a_failure_are_released_first(new_bench: NewBench) -> None:
    """LambdaTests.MessageHandlerReturnsFailedStatusBatchResponseFifo.

    And FifoSubscriberTests.SkippedMessages..._RemovesSkippedMessagesFromInflightMetadata: a
    skipped message is no longer extended. Here it is released before the failed one.
    """
    bench = new_bench(timeout=2, release_delay=1)
    bench.send("1", takes=3, fails=1)
    bench.send("2", "3", takes=3)
    bench.run(until=3.5)
    assert [name for _, name in bench.asked("release")] == ["3", "2", "1"]
    assert bench.workers[0].held() == set()
    extended = len(bench.asked("extend"))
    bench.run(until=3.9)
    assert len(bench.asked("extend")) == extended


def test_a_group_that_stops_is_logged_once(
    new_bench: NewBench, caplog: pytest.LogCaptureFixture
) -> None:
    """FifoSubscriberTests.MessagesWithFailedHandlers: one line names the group, and others run."""
    caplog.set_level(logging.INFO, "celery_sqs_heartbeat")
    bench = new_bench()
    bench.send("1", fails=1)
    bench.send("2", "3", "4")
    bench.send("5", group="B")
    bench.run_until_empty()
    lines = [each.getMessage() for each in caplog.records if "stopped" in each.getMessage()]
    assert len(lines) == 1
    assert "group A of" in lines[0]
    assert "(failed)" in lines[0]
    assert bench.start_of("5") < bench.end_of("1")


@pytest.mark.parametrize("refused", ["1", "2"])
def test_a_message_that_the_consumer_refuses_leaves_nothing_behind(
    new_bench: NewBench, refused: str
) -> None:
    """DefaultMessageManager_RethrowsInvalidMessageHandlerSignatureException: none is active then.

    And of InvokeHandler: those behind it are not extended indefinitely.
    """
    bench = new_bench(timeout=10)
    (worker,) = bench.workers
    worker.refuse[refused] = TypeError("not foreseen")
    bench.send("1", "2", "3", takes=0.5)
    bench.run(until=2)
    assert bench.started() == [name for name in ("1", "2", "3") if name < refused]
    assert worker.slots_taken() == set()
    assert worker.held() == set()
    assert worker.waiting_for_their_group() == 0
    worker.refuse.clear()
    bench.run_until_empty()
    assert bench.ended() == ["1", "2", "3"]


@pytest.mark.parametrize("damaged", ["1", "2"])
def test_a_message_that_can_not_be_decoded_is_not_skipped(
    new_bench: NewBench, damaged: str
) -> None:
    """FifoSubscriberTests.MessagesWithFrameworkandWithout: there its group continues.

    Here only its group waits for it, until it can be decoded or is a dead letter.
    """
    bench = new_bench(timeout=5)
    bench.change_answer = lambda answer: [
        message.pop("Body")
        for message in answer.get("Messages", ())
        if bench.name_of(message) == damaged and bench.now < 8
    ]
    bench.send("1", "2", "3")
    bench.send("4", group="B")
    bench.run(until=7)
    assert bench.started("A") == [name for name in ("1", "2", "3") if name < damaged]
    assert bench.ended("B") == ["4"]
    assert bench.message(damaged).receive_count >= 2
    bench.run_until_empty()
    assert bench.started("A") == ["1", "2", "3"]


def test_a_message_that_names_no_group_fails_no_other_of_its_receive(new_bench: NewBench) -> None:
    """SQSMessagePoller.ProcessInFifoMode: there it fails them all. SQS always names it."""
    bench = new_bench()
    bench.send("1", "2")
    bench.send("3", group="B")

    def hide_group(answer: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        for message in answer.get("Messages", ()):
            if bench.name_of(message) == "3":
                del message["Attributes"]["MessageGroupId"]

    bench.change_answer = hide_group
    bench.run_until_empty()
    assert bench.ended("A") == ["1", "2"]
    assert bench.ended("B") == ["3"]
