"""Message groups of FIFO queues: only their leases, as a consumer without Celery holds them.

How a worker handles groups is in `test_group_order`.

Source: aws/aws-dotnet-messaging, test/AWS.Messaging.UnitTests/DefaultMessageManagerTests.cs
and test/AWS.Messaging.IntegrationTests/FifoSubscriberTests.cs.
"""

from __future__ import annotations

import functools

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness

FIFO = "work.fifo"
BRIEF = LeaseTerms(visibility_timeout=2, threshold=1)


def run_in_order(bench: ConsumerHarness, names: list[str], *, at: float, takes: float) -> None:
    """Handle the messages of one group one after the other."""
    for place, name in enumerate(names, start=1):
        bench.at(at + place * takes, functools.partial(bench.end, name))


def test_the_messages_of_two_groups_are_kept_while_they_wait_for_their_turn() -> None:
    """DefaultMessageManager_ProcessMessageGroup: VT 2, handlers of 3 s, in turn per group.

    Its count of active messages is one for a group, ours one for a message.
    """
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.send("1", "2", queue=FIFO, group="A")
    bench.send("3", "4", queue=FIFO, group="B")
    assert bench.receive(queue=FIFO) == ["1", "2", "3", "4"]
    assert len(bench.keeper) == 4
    run_in_order(bench, ["1", "2"], at=0, takes=3)
    run_in_order(bench, ["3", "4"], at=0, takes=3)
    bench.run(until=20)
    assert [len(bench.asked("delete", name)) for name in "1234"] == [1, 1, 1, 1]
    assert bench.asked("extend", "2")[-1] > 3
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
    assert len(bench.keeper) == 0


def test_a_group_is_blocked_for_others_while_a_lease_of_it_is_kept() -> None:
    """FIFO order needs this: a lapse would let the third overtake the first."""
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.send("1", "2", "3", queue=FIFO, group="A")
    assert bench.receive(queue=FIFO, count=2) == ["1", "2"]
    run_in_order(bench, ["1", "2"], at=0, takes=5)
    for second in range(1, 10):
        bench.run(until=second)
        assert bench.steal(FIFO) == []
    bench.run(until=11)
    assert bench.steal(FIFO) == ["3"]


def test_a_group_that_is_skipped_after_a_failure_comes_again_in_its_order() -> None:
    """DefaultMessageManager_MessageGroupIsSkipped: the third of five fails.

    A consumer that skips the rest releases it at once.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=5, threshold=2))
    bench.send("1", "2", "3", "4", "5", queue=FIFO, group="A")
    bench.receive(queue=FIFO)
    run_in_order(bench, ["1", "2"], at=0, takes=1)

    def skip_the_rest() -> None:
        with bench.at_one_blow():
            for name in ("3", "4", "5"):
                bench.end(name, failed=True)

    bench.at(3, skip_the_rest)
    bench.run(until=4)
    assert [(call.at, call.names) for call in bench.calls if call.asks[0].action == "release"] == [
        (3.0, ["3", "4", "5"])
    ]
    assert len(bench.keeper) == 0
    assert bench.receive(queue=FIFO) == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("groups", "messages", "at_once"), [(1, 10, 1), (3, 3, 10), (5, 5, 5), (5, 10, 5)]
)
def test_messages_of_several_groups_are_handled_once_and_in_their_order(
    groups: int, messages: int, at_once: int
) -> None:
    """FifoSubscriberTests.SendAndReceiveMessages_MultipleMessageGroups."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=5, threshold=2))
    for group in range(groups):
        for number in range(messages):
            bench.send(f"{group}-{number}", queue=FIFO, group=str(group))
    handled: list[str] = []

    def work(backlog: list[str]) -> None:
        if not backlog:
            backlog = bench.receive(queue=FIFO, count=min(10, at_once))
        if not backlog:
            return

        def end() -> None:
            handled.append(backlog[0])
            bench.end(backlog[0])
            # The rest of a group can be received once the delete is confirmed.
            bench.at(bench.now + 0.1, lambda: work(backlog[1:]))

        bench.at(bench.now + 1, end)

    bench.at(0, lambda: work([]))
    bench.run(until=2.0 * groups * messages)
    assert len(handled) == groups * messages
    for group in range(groups):
        order = [name for name in handled if name.startswith(f"{group}-")]
        assert order == [f"{group}-{number}" for number in range(messages)]
    assert bench.lapses == []
    assert len(bench.keeper) == 0
