"""How leases are kept, compared with other systems: each case names the test or the bug it is from.

Sources: aws/aws-dotnet-messaging (its design document, DefaultMessageManagerTests,
SQSMessagePollerTests, FifoSubscriberTests); Azure/azure-sdk-for-python
(test_queue_mock_auto_lock_renew_callback); Particular/NServiceBus.AmazonSQS (RenewalTests over
Renewal.cs); googleapis/python-pubsub (test_leaser.py); Alibaba Cloud SMQ ("Manage the visibility
timeout of a message"); MassTransit (AmazonSqsReceiveLockContext); ruby-shoryuken
(auto_extend_visibility); bbc/sqs-consumer; vonsteer/taskiq-aio-sqs; kombu's gcpubsub;
awspring/spring-cloud-aws.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.settings import PREFIX, read_settings
from celery_sqs_heartbeat.testing.errors import SqsError, denied, internal, no_queue, throttled
from celery_sqs_heartbeat.testing.queue import QueueOptions
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Network, Trip

HOUR = 3_600.0
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
BRIEF = LeaseTerms(visibility_timeout=2, threshold=1)
FIFO = "work.fifo"
URL = "https://sqs"
CAPPED, EXPIRED, LOST = EventKind.LEASE_CAPPED, EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST
NEW, REDELIVERED = ReceivedAs.NEW, ReceivedAs.REDELIVERED
TEN = [f"m{number}" for number in range(10)]


def news(bench: ConsumerHarness) -> list[EventKind]:
    """Return the kinds of events after which an owner can't rely on a lease."""
    return [kind for _, kind, _ in bench.told(*BAD_NEWS)]


def received_as(bench: ConsumerHarness) -> list[ReceivedAs]:
    return [receipt for _, _, receipt in bench.deliveries]


def cut_off(since: float, until: float) -> Network:
    return lambda call: Trip(lost="request", timeout=1.0) if since <= call.at < until else Trip()


def refuse_extensions(**trip: Any) -> Network:
    return lambda call: Trip(**trip) if call.action == "extend" else Trip()


# -- When leases are extended ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout", "threshold", "receive", "extended_at"),
    [
        # NServiceBus, Should_calculate_correctly: its buffer is our threshold, a setting.
        (30, 10, {"asked_ago": 29.99}, 0),
        (1, 0.5, {}, 0.5),
        (20, 10, {}, 10),
        (30, 10, {}, 20),
        # .NET, the example of its design document.
        (30, 5, {}, 25),
        # NServiceBus, Should_renew_when_expired_but_below_buffer: by less than was there.
        (20, 10, {"hidden_for": 160}, 150),
        # SMQ: received with less than the minimal life, with more, and late in a long poll.
        (30, 10, {"hidden_for": 1}, 0),
        (30, 10, {"hidden_for": 9}, 0),
        (30, 10, {"hidden_for": 12}, 2),
        (30, 10, {"asked_ago": 29}, 0),
        (30, 10, {"asked_ago": 21}, 0),
        # Settings that SMQ refuses, and ours accept.
        (10, 6, {}, 4),
    ],
)
def test_the_first_extension_leaves_the_threshold(
    timeout: int, threshold: float, receive: dict[str, Any], extended_at: float
) -> None:
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=timeout, threshold=threshold))
    bench.send("a")
    bench.receive(**receive)
    bench.run(until=extended_at)
    assert bench.asked("extend", "a") == [extended_at]
    # NServiceBus requests the time left as well: a crash would delay the message for longer.
    assert bench.calls[0].asks[0].timeout == timeout
    assert bench.told(*BAD_NEWS) == []


@pytest.mark.parametrize(
    ("takes", "failed", "calls"),
    [
        # .NET, ManagesMessageSuccess and ManagesMessageFailed: there it waits for the timeout.
        (0, False, ["0 delete"]),
        (0, True, ["0 release"]),
        # NServiceBus, Should_not_renew_when_time_passed_below_renewal_time.
        (18, False, ["18 delete"]),
        # Should_renew_until_cancelled_according_to_renewal_time.
        (45, False, ["20 extend", "40 extend", "45 delete"]),
        # bbc/sqs-consumer: a late beat hides a released message again. Calls take 2 s here.
        (19.9, True, ["20 release"]),
        (20.5, True, ["20 extend", "22 release"]),
        (25, True, ["20 extend", "25 release"]),
        # .NET, ExtendsAlreadyDeleteMessage: its delete may overtake its extension.
        (21, False, ["20 extend", "22 delete"]),
    ],
)
def test_a_handler_takes_these_calls_and_no_other_after_its_end(
    takes: float, failed: bool, calls: list[str]
) -> None:
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=takes, failed=failed)
    bench.through(lambda call: Trip(there=1, back=1))
    bench.run(until=200)
    assert [f"{call.at:.0f} {call.action}" for call in bench.calls] == calls
    assert {outcome for call in bench.calls for outcome in call.outcomes} == {Outcome.DONE}
    assert bench.lapses == []
    assert len(bench.keeper) == 0
    assert bench.steal() == ["a"] * failed


def test_ten_messages_share_a_call_and_none_is_left() -> None:
    """bbc/sqs-consumer: a call for each at each beat. .NET, CountsActiveMessagesCorrectly."""
    bench = ConsumerHarness(TERMS)
    bench.process(*(f"m{number:03}" for number in range(100)), takes=610)
    bench.run(until=605)
    assert bench.lapses == []
    assert {len(call.asks) for call in bench.calls} == {10}
    assert len(bench.calls) == 10 * 30
    bench.run(until=700)
    assert [(call.action, len(call.asks)) for call in bench.calls[-10:]] == [("delete", 10)] * 10
    assert len(bench.keeper) == bench.keeper.ending == 0
    assert bench.queue().messages == {}


@pytest.mark.parametrize("timeout", [1, 2, 3, 4, 5, 6])
def test_a_short_timeout_leaves_an_interval_and_a_margin(timeout: int) -> None:
    """Shoryuken: 5 s or less left an interval of 0 or less: a storm, or no extension."""
    conf = {PREFIX + "visibility_timeout": timeout}
    settings = read_settings(conf.get, names=conf)
    terms = settings.for_queue("work").terms(timeout)
    assert 0 < settings.longest_sleep() < terms.threshold < timeout
    bench = ConsumerHarness(terms, interval=settings.longest_sleep())
    bench.through(lambda call: Trip(there=0.05, back=0.05))
    bench.process("a", takes=60)
    bench.run(until=70)
    assert bench.lapses == bench.told(*BAD_NEWS) == []
    assert len(bench.asked("extend", "a")) <= 60 / timeout * 2
    assert bench.message("a").is_deleted


@pytest.mark.parametrize(("there", "back"), [(3.0, 0.0), (1.5, 1.5), (0.0, 3.0)])
def test_calls_that_take_3_s_never_let_a_lease_lapse(there: float, back: float) -> None:
    """Pub/Sub, leaser.py: it slept its whole interval after a call of 3 s."""
    bench = ConsumerHarness(LeaseTerms.of(10))
    bench.through(lambda call: Trip(there=there, back=back))
    for number in range(25):
        bench.process(f"m{number}", at=number * 0.7, takes=300)
    bench.run(until=400)
    assert bench.lapses == bench.shortened == bench.told(*BAD_NEWS) == []
    assert len(bench.keeper) == 0
    assert len(bench.deliveries) == 25


def test_a_lease_counts_from_before_its_call_was_sent() -> None:
    """Pub/Sub, leaser.py: the time of a call is taken off the lease."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=10, threshold=4))
    bench.process("a", takes=120)
    bench.through(lambda call: Trip(back=1))
    bench.run(until=9.5)
    lease = bench.lease("a")
    assert lease is not None
    assert (lease.expires_at, lease.extend_at) == (16.0, 12.0)
    bench.run(until=119)
    assert bench.asked("extend", "a") == [6.0 * beat for beat in range(1, 20)]


@pytest.mark.parametrize("seed", range(3))
def test_an_extension_never_shortens_a_lease(seed: int) -> None:
    """MassTransit renewed a timeout of 300 s for 60 s. Here entries that fill up a call, too."""
    generator = random.Random(seed)
    bench = ConsumerHarness(LeaseTerms.of(3_600), interval=5)
    bench.through(lambda call: Trip(there=generator.random(), back=generator.random()))
    for number in range(60):
        bench.process(
            f"m{number}",
            at=generator.random() * 600,
            takes=generator.random() * 2_000,
            terms=LeaseTerms.of(generator.choice([10, 30, 60, 300, 3_600])),
        )
    bench.run(until=3_000)
    assert bench.shortened == bench.lapses == []
    assert len(bench.keeper) == 0


def test_only_the_outdated_are_given_up() -> None:
    """Pub/Sub, test_maintain_leases_outdated_items; SMQ, MessageTimeout.

    There it counts from when a message is handed over. Ours counts from the receive, as SQS's 12
    hours do, and the last extension is shortened to fit.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=10, threshold=3, max_lease=60))
    bench.process("old", at=0, takes=500)
    bench.process("young", at=59, takes=40)
    bench.run(until=120)
    ((at, kind, name),) = bench.told(*BAD_NEWS)
    assert (kind, name) == (CAPPED, "old")
    assert max(*bench.asked("extend", "old"), at) <= 60
    assert bench.message("old").visible_at == pytest.approx(60, abs=1)
    assert [name for _, name in bench.lapses] == ["old"]
    assert bench.message("young").is_deleted
    assert bench.steal() == ["old"]


# -- Failing calls --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        throttled(),
        internal(),
        internal(503),
        SqsError("ExpiredToken", "The security token included in the request is expired", 403),
        SqsError("SomethingNew", "This error code is new"),
        ReadTimeoutError(endpoint_url=URL),
        ConnectionClosedError(endpoint_url=URL),
        EndpointConnectionError(endpoint_url=URL),
        NoCredentialsError(),
        ConnectionResetError("reset"),
    ],
    ids=lambda error: getattr(error, "code", type(error).__name__),
)
def test_no_error_ends_the_extending_or_counts_as_a_success(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """taskiq-aio-sqs and NServiceBus: the first error ends it. .NET: it counts as a success."""
    caplog.set_level(logging.WARNING)
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=200)
    bench.through(lambda call: Trip(error=error) if call.at < 28 else Trip())
    bench.run(until=20.01)
    lease = bench.lease("a")
    assert lease is not None
    assert bench.calls[0].outcomes[0] is not Outcome.DONE
    assert (lease.expires_at, lease.extensions) == (30.0, 0)
    bench.run(until=300)
    assert bench.lapses == bench.told(*BAD_NEWS) == []
    assert bench.message("a").is_deleted
    assert caplog.records == []


@pytest.mark.parametrize(
    "error", [denied("ChangeMessageVisibility"), no_queue(), RuntimeError("not foreseen")]
)
def test_a_fatal_error_on_one_queue_does_not_end_the_extending_of_another(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """.NET: an error that it calls fatal ends its loop that extends."""
    caplog.set_level(logging.CRITICAL)
    bench = ConsumerHarness(TERMS)
    bench.process("bad", queue="broken", takes=599)
    bench.process("good", takes=599)
    bench.through(lambda call: Trip(error=error) if call.queue == "broken" else Trip())
    bench.run(until=700)
    assert "good" not in {name for _, name in bench.lapses}
    assert "good" not in {name for _, _, name in bench.told(*BAD_NEWS)}
    assert bench.message("good").is_deleted


@pytest.mark.parametrize("action", ["extend", "release", "delete"])
def test_an_entry_that_failed_in_a_batch_does_not_count_as_done(action: str) -> None:
    """spring-cloud-aws and .NET look at whether the call failed, never at `Failed`.

    The entry is sent again. The nine others are not, except for extensions, which fill up calls.
    """
    bench = ConsumerHarness(TERMS)
    bench.process(*TEN, takes=21 if action == "extend" else 1, failed=action == "release")
    first_try = 20.0 if action == "extend" else 1.0
    refused = {"m3": throttled()}
    bench.through(lambda call: Trip(refused=refused) if call.at == first_try else Trip())
    bench.run(until=first_try + 0.9)
    first, second = bench.calls
    assert first.outcomes.count(Outcome.DONE) == 9
    assert second.names == (TEN if action == "extend" else ["m3"])
    bench.run(until=100)
    assert len(bench.keeper) == 0
    assert bench.lapses == []
    assert all(bench.message(name).is_deleted is (action != "release") for name in TEN)


@pytest.mark.parametrize(("takes", "is_capped"), [(11 * HOUR + 1_000, True), (11.9 * HOUR, False)])
def test_the_refusal_past_12_hours_is_no_lost_lease(takes: float, is_capped: bool) -> None:
    """NServiceBus takes every InvalidParameterValue for an expiry.

    If SQS dates the receive an hour earlier than we do, it refuses before we expect it. The message
    is ours for as long as the last timeout holds. Otherwise the last extension is shortened.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=3_600, threshold=1_200), interval=300)
    bench.process("a", takes=takes)
    bench.run(until=1)
    if is_capped:
        bench.message("a").received_at -= HOUR
    bench.run(until=13 * HOUR)
    outcomes = [outcome for call in bench.calls for outcome in call.outcomes]
    assert set(outcomes[:-2]) == {Outcome.DONE}
    assert outcomes[-2:] == [Outcome.CAPPED if is_capped else Outcome.DONE, Outcome.DONE]
    assert CAPPED in news(bench)
    assert LOST not in news(bench)
    assert bench.message("a").is_deleted


# -- What the owner hears -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "failed", "network", "kinds"),
    [
        pytest.param(600, False, {}, [], id="nothing happens"),
        pytest.param(60, False, {"lost": "request", "timeout": 0.3}, [EXPIRED, LOST], id="silence"),
        pytest.param(60, False, {"error": internal()}, [EXPIRED, LOST], id="errors"),
        pytest.param(1.5, False, {"lost": "request"}, [], id="it is deleted before its expiry"),
        pytest.param(1.5, True, {"lost": "request"}, [], id="it is released before its expiry"),
    ],
)
def test_the_owner_hears_of_an_expiry_once_and_when_the_lease_is_given_up(
    takes: float, failed: bool, network: dict[str, Any], kinds: list[EventKind]
) -> None:
    """Azure, the callback on_lock_renew_failure: its first to fourth parts."""
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.process("a", takes=takes, failed=failed)
    bench.through(refuse_extensions(**network))
    bench.run(until=620)
    assert news(bench) == kinds
    tries = bench.told(EventKind.EXTENSION_FAILED)
    assert len(tries) >= (5 if kinds else 0)
    assert len(bench.keeper) == 0


@pytest.mark.parametrize("timeout", [0.3, 1.0])
def test_the_owner_hears_no_later_than_the_call_that_outlives_the_lease(timeout: float) -> None:
    """Azure: there within a second. A tenth of a second allows for a retry that still waits."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=300)
    bench.through(lambda call: Trip(lost="request", timeout=timeout))
    bench.run(until=60)
    at, kind, _ = bench.told(*BAD_NEWS)[0]
    assert kind is EXPIRED
    assert 30 <= at <= 30 + timeout + 0.1


@pytest.mark.parametrize("queue", ["work", FIFO])
def test_the_owner_hears_of_a_message_that_someone_deleted(
    queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """.NET, ExtendsAlreadyDeleteMessage; NServiceBus, When_renewing_visibility_failed; Pub/Sub,

    test_maintain_leases_expired_ack_ids_exactly_once; Azure, its fourth part. It is no error.
    """
    caplog.set_level(logging.ERROR, "celery_sqs_heartbeat")
    bench = ConsumerHarness(TERMS)
    bench.send("a", "b", queue=queue, group="g" if queue == FIFO else None)
    bench.receive(queue=queue)
    bench.at(10, lambda: bench.delete_elsewhere("a"))
    bench.run(until=90)
    (event,) = [each for each in bench.events if each.kind in BAD_NEWS]
    assert (event.at, event.kind, event.outcome) == (20.0, LOST, Outcome.LOST)
    assert bench.asked("extend", "a") == [20.0]
    assert bench.asked("extend", "b") == [20.0, 40.0, 60.0, 80.0]
    bench.end("a")
    bench.end("b")
    bench.run(until=100)
    assert len(bench.keeper) == 0
    assert caplog.records == []


@pytest.mark.parametrize(("queue", "kinds"), [("work", [EXPIRED]), (FIFO, [EXPIRED, LOST])])
def test_the_owner_hears_of_a_message_that_another_consumer_received(
    queue: str, kinds: list[EventKind]
) -> None:
    """NServiceBus, the same by a competing consumer, after our calls were cut off.

    On a standard queue SQS takes the stale handle, so only the expiry can be noticed.
    """
    bench = ConsumerHarness(TERMS)
    bench.send("a", queue=queue, group="g" if queue == FIFO else None)
    bench.receive(queue=queue)
    bench.through(cut_off(20, 34))
    bench.run(until=31)
    assert bench.steal(queue) == ["a"]
    bench.run(until=120)
    assert news(bench) == kinds
    assert all(30 <= at < 40 for at, _, _ in bench.told(*BAD_NEWS))


def test_nothing_is_heard_of_a_closed_keeper_which_can_start_again() -> None:
    """Azure, its fifth part, and test_queue_mock_no_reusing_auto_lock_renew, where ours differs."""
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.process("old", takes=60)
    bench.run(until=0.5)
    bench.keeper.start()
    bench.keeper.stop()
    assert len(bench.keeper) == 0
    bench.process("new", at=1, takes=9)
    bench.run(until=20)
    assert bench.told(*BAD_NEWS) == bench.asked("extend", "old") == []
    assert bench.message("new").is_deleted


# -- What is one lease, and when it ends ----------------------------------------------------


def test_a_message_that_expired_2_s_ago_is_left_to_sqs() -> None:
    """NServiceBus, Should_renew_when_expired_but_below_threshold: someone may have received it."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=10, threshold=5))
    bench.send("a")
    assert bench.receive(asked_ago=12) == []
    bench.run(until=0.3)
    assert bench.calls == []
    assert bench.receive() == ["a"]


@pytest.mark.parametrize("ends_at", [5, 25, 100])
def test_a_duplicate_is_no_second_lease(ends_at: float) -> None:
    """MassTransit: no one ended the renewal of a copy. Pub/Sub, test_add_already_managed."""
    options = QueueOptions(visibility_timeout=30, duplicate_rate=1.0)
    bench = ConsumerHarness(TERMS, options=options)
    bench.process("a", takes=ends_at)
    bench.at(3, bench.receive)
    bench.run(until=4)
    lease = bench.lease("a")
    assert lease is not None
    assert lease.receipt_handle == bench.message("a").handle != bench.handle("a")
    again = {"MessageId": bench.message("a").message_id, "ReceiptHandle": lease.receipt_handle}
    assert bench.keeper.receive(bench.queue().url, again) is REDELIVERED
    bench.run(until=ends_at + 1)
    assert received_as(bench) == [NEW, REDELIVERED]
    assert len(bench.keeper) == 0
    calls = len(bench.calls)
    bench.run(until=1_000)
    assert len(bench.calls) == calls
    assert all(call.names == ["a"] for call in bench.calls)
    assert bench.message("a").is_deleted


def test_a_duplicate_that_comes_after_the_end_is_deleted_and_not_renewed() -> None:
    """MassTransit: a late copy of a message that is already done."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=25)
    # SQS loses the extension, and delivers the message again while its delete is under way.
    bench.through(lambda call: Trip(lost="request") if call.action == "extend" else Trip(there=6))
    bench.at(30, bench.receive)
    bench.run(until=1_000)
    assert received_as(bench) == [NEW, ReceivedAs.FINISHED]
    assert bench.message("a").is_deleted
    assert len(bench.keeper) == 0
    assert max(call.at for call in bench.calls) < 60


def test_a_message_received_again_by_the_worker_that_lost_it_is_not_run_twice() -> None:
    """NServiceBus, When_renewing_visibility_failed: the lease continues under the new handle."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=300)
    bench.through(cut_off(20, 34))
    bench.at(31, bench.receive)
    bench.run(until=400)
    assert received_as(bench) == [NEW, REDELIVERED]
    assert len(bench.lapses) == 1
    assert bench.message("a").is_deleted


@pytest.mark.parametrize(
    "remove", [ThreadKeeper.done, ThreadKeeper.release, ThreadKeeper.let_expire]
)
def test_a_settled_message_is_not_extended_and_settling_twice_changes_nothing(
    remove: Callable[[ThreadKeeper, str], bool], caplog: pytest.LogCaptureFixture
) -> None:
    """kombu gcpubsub: `reject` left the message with those to be extended. Pub/Sub,

    test_remove_not_managed; spring-cloud-aws: removal by an equal but other object did nothing.
    """
    caplog.set_level(logging.WARNING)
    bench = ConsumerHarness(TERMS)
    assert remove(bench.keeper, "unknown") is False
    bench.send("a", "b")
    bench.receive()
    bench.run(until=25)
    copy = "".join(list(bench.handle("a")))
    assert bench.keeper.find(copy) is bench.lease("a")
    for _ in range(2):
        remove(bench.keeper, copy)
        bench.wake()
        bench.run(until=bench.now + 1)
    bench.run(until=5_000)
    assert bench.asked("extend", "a") == [20.0]
    assert bench.message("a").is_deleted or bench.message("a").visible_at <= 50
    assert not bench.message("b").is_deleted
    assert len(bench.keeper) == 1
    assert caplog.records == []


def test_a_group_is_blocked_for_others_until_its_leases_end_and_comes_again_in_order() -> None:
    """.NET, ProcessMessageGroup and MessageGroupIsSkipped: it extended the skipped for 12 hours."""
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.send("1", "2", "3", "4", queue=FIFO, group="A")
    assert bench.receive(queue=FIFO, count=3) == ["1", "2", "3"]
    bench.at(5, lambda: bench.end("1"))
    for second in range(1, 10):
        bench.run(until=second)
        assert bench.steal(FIFO) == []
    extended = len(bench.asked("extend", "3"))
    with bench.at_one_blow():
        bench.end("2", failed=True)
        bench.end("3", failed=True)
    bench.run(until=100)
    assert [call.names for call in bench.calls if call.action == "release"] == [["2", "3"]]
    assert len(bench.asked("extend", "3")) == extended
    assert len(bench.keeper) == 0
    assert bench.receive(queue=FIFO) == ["2", "3", "4"]
