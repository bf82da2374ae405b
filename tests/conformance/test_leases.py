"""How leases are kept, compared with other systems: each case names the test or the bug it is from.

Sources: aws/aws-dotnet-messaging (its design document, DefaultMessageManagerTests); Azure/
azure-sdk-for-python (test_queue_mock_auto_lock_renew_callback); Particular/NServiceBus.AmazonSQS
(RenewalTests over Renewal.cs); Alibaba Cloud SMQ ("Manage the visibility timeout of a message");
ruby-shoryuken (auto_extend_visibility); bbc/sqs-consumer; vonsteer/taskiq-aio-sqs;
awspring/spring-cloud-aws. Those that have a table in tests/unit are there.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import PREFIX, read_settings
from celery_sqs_heartbeat.testing.errors import SqsError, denied, internal, no_queue, throttled
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Network, Trip

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
EXPIRED, LOST = EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST
FIFO = "work.fifo"
URL = "https://sqs"
TEN = [f"m{number}" for number in range(10)]


def news(bench: ConsumerHarness) -> list[EventKind]:
    """Return the kinds of events after which an owner can't rely on a lease."""
    return [kind for _, kind, _ in bench.told(*BAD_NEWS)]


def cut_off(since: float, until: float) -> Network:
    return lambda call: Trip(lost="request", timeout=1.0) if since <= call.at < until else Trip()


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


# -- What the owner hears -------------------------------------------------------------------


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
