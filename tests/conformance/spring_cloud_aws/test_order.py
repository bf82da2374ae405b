"""The order of message groups.

Source: awspring/spring-cloud-aws, spring-cloud-aws-sqs/src/test: listener/sink/
MessageGroupingSinkTests, OrderedMessageListeningSinkTests (its long row is run on a real worker in
tests/acceptance/test_fifo_scenarios.py), integration/SqsFifoIntegrationTests,
FifoSqsComponentFactory, FifoSqsMessageSourceTests; issues 124 and 892.

Left out: batches that may mix groups, because a Celery task has one message; a receive's
`ReceiveRequestAttemptId`, which kombu does not send; containers that refuse standard queues beside
FIFO ones, because a worker keeps the order of each FIFO queue. LocalStack's wrong orders are in
tests/conformance/servers/differences.py.
"""

from __future__ import annotations

import random

import pytest

from tests.conformance.conftest import NewBench
from tests.conformance.group_bench import FIFO, GroupBench


def send_groups(bench: GroupBench, groups: int, each: int, longest: float) -> dict[str, list[str]]:
    """Send groups of messages whose tasks take up to so many seconds; return them by group."""
    durations = random.Random(7)
    sent: dict[str, list[str]] = {}
    for number in range(each):
        for group in map(str, range(groups)):
            name = f"{group}-{number}"
            bench.send(name, group=group, takes=durations.uniform(0, longest))
            sent.setdefault(group, []).append(name)
    return sent


@pytest.mark.parametrize(
    ("groups", "each", "longest"), [(3, 10, 0.05), (1, 5, 0.5), (3, 10, 0.5), (1, 30, 0.0)]
)
def test_work_and_deletes_of_each_group_are_in_order(
    new_bench: NewBench, groups: int, each: int, longest: float
) -> None:
    """Four tests of it:

    - maintainsOrderWithinEachGroup: 3 groups of 10, each takes 0 to 50 ms
    - receivesMessagesInOrder: 5 of one group
    - receivesMessagesInOrderFromManyMessageGroups: the deletes, too
    - shouldEmitInOrder: one long row
    """
    bench = new_bench(workers=2)
    sent = send_groups(bench, groups, each, longest)
    bench.run_until_empty()
    for group, names in sent.items():
        assert bench.started(group) == bench.ended(group) == bench.deleted(group) == names


def test_messages_delivered_together_are_one_of_each_group(new_bench: NewBench) -> None:
    """receivesBatchesManyGroups: there a batch is of one group.

    Here a batch of celery-batches has one message of each: the next waits for its delete.
    """
    bench = new_bench(processes=0)
    send_groups(bench, groups=4, each=5, longest=1)
    bench.run(until=5)
    names = [request.id for request in bench.workers[0].waiting]
    assert sorted(names) == ["0-0", "1-0", "2-0", "3-0"]


def test_a_missing_ack_delays_its_group(new_bench: NewBench) -> None:
    """Issue 124: the second must not be handled while the first is not acked."""
    bench = new_bench(workers=2)
    bench.send("1", takes=100)
    bench.send("2", "3")
    bench.send("4", group="B")
    bench.run(until=90)
    assert bench.started() == ["1", "4"]


def test_with_early_acks_the_starts_are_in_order(new_bench: NewBench) -> None:
    """Issue 124 for tasks that are acked when they begin: they begin in order."""
    bench = new_bench(workers=2)
    bench.send("1", "2", "3", takes=5, acks_early=True)
    bench.run(until=4)
    assert bench.started() == bench.deletes == ["1", "2", "3"]


@pytest.mark.parametrize("wanted", ["SenderId", "SentTimestamp"])
def test_a_receive_asks_for_the_group_whatever_its_user_asks_for(
    new_bench: NewBench, wanted: str
) -> None:
    """validateFifoOptions: there a container without it refuses to start."""
    bench = new_bench(options={"fetch_message_attributes": [wanted]})
    asked = bench.workers[0].channel.wanted_attributes()
    assert {wanted, "MessageGroupId", "SequenceNumber"} <= {*asked["MessageSystemAttributeNames"]}
    bench.send("1", "2", takes=2)
    bench.run_until_empty()
    assert bench.ended() == ["1", "2"]


def test_a_standard_queue_beside_it_has_no_order(new_bench: NewBench) -> None:
    """FifoUtils.isFifo: a group's name on a standard queue, a fair one, orders nothing."""
    bench = new_bench(queues=(FIFO, "fair"))
    bench.send("1", "2", takes=5)
    bench.send("3", "4", queue="fair", takes=5)
    bench.run(until=4)
    assert sorted(bench.started()) == ["1", "3", "4"]
