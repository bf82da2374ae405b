"""Message groups on workers with our own channel, keeper and link, compared with other systems.

Sources: aws/aws-dotnet-messaging (DefaultMessageManagerTests, FifoSubscriberTests, LambdaTests) and
awspring/spring-cloud-aws (MessageGroupingSinkTests, SqsFifoIntegrationTests,
BatchingAcknowledgementProcessorTests and others; issues 124, 196, 444, 1415). Both group the
messages of one receive, and then forget the group. JaidenAshmore/java-dynamic-sqs-listener, issue
369.

The bench checks at every start of a task that the earlier messages of its group are deleted. Real
workers run durations, numbers of processes, unreadable messages and unknown tasks, in
tests/acceptance/test_fifo_scenarios.py. Left out: reports of failed items to Lambda, batches that
mix groups (a Celery task has one message), `ReceiveRequestAttemptId` (kombu does not send it).
"""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.testing.errors import handle_expired, not_available, throttled
from tests.conformance.conftest import NewBench
from tests.conformance.group_bench import FIFO
from tests.conformance.network import SentCall, Trip

TENS = {str(group): [f"{group}-{number}" for number in range(10)] for group in range(10)}


def does(call: SentCall, action: str, name: str = "") -> bool:
    """Return whether a call does that for any message, or for that one."""
    return any(ask.action == action and name in ("", ask.name) for ask in call.asks)


# -- Order ----------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 5])
def test_a_receive_may_mix_the_groups(new_bench: NewBench, processes: int) -> None:
    """LambdaTests.FifoMessageHandling_MultipleMessageGroups: the later ones are faster."""
    bench = new_bench(processes=processes, timeout=2)
    bench.change_answer = lambda answer: answer.get("Messages", []).sort(
        key=lambda message: "B1A1A2B2A3B3".index(bench.name_of(message))
    )
    for number, takes in ((1, 3.0), (2, 2.0), (3, 1.0)):
        for group in "AB":
            bench.send(f"{group}{number}", group=group, takes=takes)
    bench.run_until_empty()
    for group in "AB":
        wanted = [f"{group}{number}" for number in (1, 2, 3)]
        assert bench.started(group) == bench.ended(group) == bench.deleted(group) == wanted
    assert (bench.start_of("A1") == bench.start_of("B1")) is (processes > 1)


def test_deletes_of_each_group_are_confirmed_in_order(new_bench: NewBench) -> None:
    """shouldAcknowledgeOrderedByGroupFromManyMessageGroups: each takes 0 to 10 ms, or 0 to 1 s.

    maintainsOrderWithinEachGroup, receivesMessagesInOrderFromManyMessageGroups.
    """
    delays = random.Random(5)
    bench = new_bench(processes=10, prefetch=40, workers=2)
    bench.through(lambda call: Trip(there=delays.choice((0.01, 1.0)) * delays.random()))
    for group, names in TENS.items():
        bench.send(*names, group=group, takes=0.05)
    bench.run_until_empty()
    for group, names in TENS.items():
        assert bench.started(group) == bench.ended(group) == bench.deleted(group) == names
    # Side by side, not one group after another.
    assert bench.deletes != sorted(bench.deletes)


def test_a_group_counts_once_against_the_workers_limit(new_bench: NewBench) -> None:
    """DefaultMessageManager: a group is one active message, and the poller reads on."""
    bench = new_bench(processes=2, prefetch=2)
    bench.send(*(f"A{number}" for number in range(10)), takes=30)
    bench.send("B0", group="B")
    bench.run(until=1)
    assert bench.started() == ["A0", "B0"]


def test_messages_delivered_together_are_one_of_each_group(new_bench: NewBench) -> None:
    """receivesBatchesManyGroups: a batch of celery-batches has one message of each group."""
    bench = new_bench(processes=0)
    for group in "0123":
        bench.send(*TENS[group][:5], group=group)
    bench.run(until=5)
    names = [request.id for request in bench.workers[0].waiting]
    assert sorted(names) == ["0-0", "1-0", "2-0", "3-0"]


def test_a_group_is_one_of_its_fifo_queue(new_bench: NewBench) -> None:
    """FifoUtils.isFifo: a group's name on a standard queue, a fair one, orders nothing."""
    bench = new_bench(queues=(FIFO, "other.fifo", "fair"), processes=8)
    bench.send("1", "2", takes=5)
    bench.run(until=1)
    bench.send("3", "4", queue="other.fifo", takes=5)
    bench.send("5", "6", queue="fair", takes=5)
    bench.run(until=3)
    assert sorted(bench.started()) == ["1", "3", "5", "6"]


def test_with_early_acks_the_starts_are_in_order(new_bench: NewBench) -> None:
    """Issue 124 for tasks that are acked when they begin."""
    bench = new_bench(workers=2)
    bench.send("1", "2", "3", takes=5, acks_early=True)
    bench.run(until=4)
    assert bench.started() == bench.deletes == ["1", "2", "3"]


def test_a_receive_asks_for_the_group_whatever_its_user_asks_for(new_bench: NewBench) -> None:
    """validateFifoOptions: there a container without it refuses to start."""
    bench = new_bench(options={"fetch_message_attributes": ["SenderId"]})
    asked = bench.workers[0].channel.wanted_attributes()["MessageSystemAttributeNames"]
    assert {"SenderId", "MessageGroupId", "SequenceNumber"} <= {*asked}


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
    bench.send("4")
    bench.run_until_empty()
    assert bench.started() == ["1", "2", "3", "4"]


# -- Failures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "prefetch", "fails", "delay"), [(1, 16, 1, 0), (1, 16, 1, 5), (2, 1, 3, 0)]
)
def test_nothing_runs_behind_a_failure_until_it_has_succeeded_and_nothing_waits_longer(
    new_bench: NewBench, workers: int, prefetch: int, fails: int, delay: int
) -> None:
    """MessageGroupIsSkipped, stopsProcessingAfterException. Issue 1415: the rest of a full batch

    stalls the group for its visibility timeout. Issue 444: another worker runs those behind.
    """
    settings = {"release_delay": delay} if delay else {}
    bench = new_bench(workers=workers, processes=1, prefetch=prefetch, timeout=900, **settings)
    bench.send("1", "2")
    bench.send("3", fails=fails)
    bench.send("4", "5")
    bench.run_until_empty()
    assert bench.started() == ["1", "2", *["3"] * (fails + 1), "4", "5"]
    assert bench.ended() == ["1", "2", "3", "4", "5"]
    again = bench.start_of("3", nth=1) - bench.start_of("3") - 1
    assert delay <= again < delay + 1
    assert bench.start_of("4") - bench.end_of("3") < 1


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
    (line,) = [each.getMessage() for each in caplog.records if "stopped" in each.getMessage()]
    assert "group A of" in line
    assert "(failed)" in line
    assert bench.start_of("5") < bench.end_of("1")


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


@pytest.mark.parametrize("refused", ["1", "2"])
def test_a_message_that_the_consumer_refuses_leaves_nothing_behind(
    new_bench: NewBench, refused: str
) -> None:
    """RethrowsInvalidMessageHandlerSignatureException: none is active or extended then."""
    bench = new_bench(timeout=10)
    (worker,) = bench.workers
    worker.refuse[refused] = TypeError("not foreseen")
    bench.send("1", "2", "3", takes=0.5)
    bench.run(until=2)
    assert bench.started() == [name for name in ("1", "2", "3") if name < refused]
    assert worker.slots_taken() == worker.held() == set()
    assert worker.waiting_for_their_group() == 0
    worker.refuse.clear()
    bench.run_until_empty()
    assert bench.ended() == ["1", "2", "3"]


@pytest.mark.parametrize("damaged", ["1", "2"])
def test_a_message_that_can_not_be_decoded_is_not_skipped(
    new_bench: NewBench, damaged: str
) -> None:
    """FifoSubscriberTests.MessagesWithFrameworkandWithout: there its group continues."""
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
    bench.change_answer = lambda answer: [
        message["Attributes"].pop("MessageGroupId")
        for message in answer.get("Messages", ())
        if bench.name_of(message) == "3"
    ]
    bench.run_until_empty()
    assert [bench.ended("A"), bench.ended("B")] == [["1", "2"], ["3"]]


# -- Deletes and leases ---------------------------------------------------------------------


def test_a_delete_that_is_refused_stops_its_group(new_bench: NewBench) -> None:
    """stopsProcessingAfterAckException. AWS's framework for .NET continues.

    There the handler runs again. Here the message is deleted when it comes again, and not run.
    """
    bench = new_bench(timeout=10)
    bench.send("1", "2", "3")
    refused = {"2": handle_expired("h")}
    bench.through(
        lambda call: Trip(refused=refused if call.at < 1008 and does(call, "delete") else {})
    )
    bench.run(until=8)
    assert bench.started() == ["1", "2"]
    assert bench.workers[0].held() == set()
    bench.run_until_empty()
    assert bench.started() == bench.deletes == ["1", "2", "3"]
    assert bench.message("2").receive_count == 2


@pytest.mark.parametrize(
    "trip", [{"refused": {"1": throttled()}}, {"error": throttled()}], ids=["entry", "call"]
)
def test_a_delete_that_fails_delays_only_its_own_group(
    new_bench: NewBench, trip: dict[str, Any]
) -> None:
    """SqsAcknowledgementExecutor, shouldRecoverFromErrorInOrder: an entry, or the whole call."""
    bench = new_bench()
    bench.send("1", "2")
    bench.run(until=0.5)
    bench.send("3", "4", group="B")
    bench.through(lambda call: Trip(**trip) if call.at < 1006 and "1" in call.names else Trip())
    bench.run_until_empty()
    assert bench.started("A") == ["1", "2"]
    assert bench.start_of("2") > 6
    if "refused" in trip:
        assert bench.start_of("4") < 3


@pytest.mark.parametrize("lost", ["1", "2"])
def test_after_a_lost_lease_the_messages_behind_it_are_released(
    new_bench: NewBench, lost: str
) -> None:
    """The lease of the running or of a waiting message: SQS delivers its group again."""
    bench = new_bench(timeout=10, workers=2)
    bench.send("1", takes=30)
    bench.send("2", "3")
    refused = {lost: not_available("h")}
    bench.through(
        lambda call: Trip(refused=refused if call.at < 1009 and does(call, "extend") else {})
    )
    bench.run(until=8.9)
    behind = [name for name in ("3", "2") if name > lost]
    assert [name for at, name in bench.asked("release") if at < 8.9] == behind
    bench.run_until_empty()
    assert [name for name in bench.started() if name != "1"] == ["2", "3"]
    assert bench.start_of("2") >= bench.end_of("1")


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


def test_waiting_messages_are_extended_and_deleted_ones_are_not(new_bench: NewBench) -> None:
    """visibilityTimeoutExtensionWorksForFifoBatch. Issue 196: waiting messages came twice."""
    bench = new_bench(timeout=2)
    bench.send("first", takes=20)
    bench.send("second", "third", takes=4)
    bench.run_until_empty()
    deleted_at = {name: at for at, name in bench.asked("delete")}
    assert all(at < deleted_at[name] for at, name in bench.asked("extend"))
    assert {outcome for call in bench.calls for outcome in call.outcomes} == {Outcome.DONE}
    assert len([at for at, name in bench.asked("extend") if name == "third"]) > 15
    assert bench.started() == ["first", "second", "third"]
    assert bench.message("third").receive_count == 1


# -- Ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["failure", "lost lease", "refused delete", "shutdown"])
def test_whatever_stops_a_group_all_its_waiting_messages_are_released_from_its_end(
    new_bench: NewBench, end: str
) -> None:
    """InvokeHandler: an error in a group left the rest in the table, extended for 12 hours."""
    bench = new_bench(timeout=10)
    (worker,) = bench.workers
    bench.send("1", takes=8, fails=int(end == "failure"))
    bench.send("2", "3")
    action = {"lost lease": "extend", "refused delete": "delete"}.get(end, "")
    refused = {"1": not_available("h")}
    bench.through(lambda call: Trip(refused=refused if does(call, action, "1") else {}))
    bench.run(until=1)
    worker.is_receiving = False
    if end == "shutdown":
        bench.at(3, worker.shut_down)
    bench.run(until=60)
    assert bench.started() == ["1"]
    assert worker.held() == worker.slots_taken() == set()
    assert worker.waiting_for_their_group() == 0
    assert [name for _, name in bench.asked("release") if name != "1"] == ["3", "2"]
    assert all(at < 9 for at, _ in bench.asked("extend"))


def test_after_a_lost_connection_groups_are_released_last_message_first(
    new_bench: NewBench,
) -> None:
    bench = new_bench(timeout=600, workers=2)
    bench.send("1", "2", "3", takes=20)
    bench.send("4", "5", group="B", takes=20)
    for worker in bench.workers:
        worker.processes = 0
    bench.run(until=1)
    holder, other = sorted(bench.workers, key=lambda worker: not worker.held())
    holder.lose_connection()
    bench.run(until=2)
    released = [name for _, name in bench.asked("release")]
    assert [name for name in released if name in "123"] == ["3", "2", "1"]
    assert [name for name in released if name in "45"] == ["5", "4"]
    other.processes = 4
    bench.run_until_empty()
    assert bench.started("A") == ["1", "2", "3"]


@pytest.mark.parametrize("back", [0.0, 5.0])
def test_a_delete_that_is_confirmed_during_a_shutdown_starts_nothing(
    new_bench: NewBench, back: float
) -> None:
    """onAcknowledge while not running: there it counts as done, and the next is handled.

    Here waiting messages are released when the shutdown begins, the last one first, and deletes
    under way are confirmed.
    """
    bench = new_bench(timeout=600)
    bench.send("1", "2", "3", "4")
    bench.through(lambda call: Trip(back=back if does(call, "delete") else 0.0))
    bench.run(until=1.3)
    assert bench.ended() == ["1"]
    bench.workers[0].shut_down()
    bench.run(until=10)
    # The second had begun if the answer was fast.
    begun = ["1", "2"][: 1 if back else 2]
    assert bench.started() == bench.deletes == begun
    released = [name for _, name in bench.asked("release")]
    assert released == [name for name in ("4", "3", "2") if name not in begun]


def test_a_task_that_runs_as_a_shutdown_begins_is_deleted_when_it_ends(new_bench: NewBench) -> None:
    """whenStopped: buffered deletes are sent before the end. Extending continues until then.

    There, in AWS's framework for .NET and in Shoryuken, it ended with the signal.
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
