"""AWS Message Processing Framework for .NET: four bugs.

Source: aws/aws-dotnet-messaging, src/AWS.Messaging/Services/DefaultMessageManager.cs
(ExtendUnfinishedMessageVisibilityTimeoutBatch, ProcessMessageGroupAsync) and
src/AWS.Messaging/SQS/SQSMessagePoller.cs (ExtendMessageVisibilityTimeoutAsync).
"""

from __future__ import annotations

import logging

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing.errors import denied, internal, no_queue, throttled
from tests.conformance.bugs_others_had.shutdown import shut_down_warmly
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Trip

TERMS = LeaseTerms(visibility_timeout=30, threshold=5)


def test_a_failed_extension_does_not_count_as_a_success() -> None:
    """It moves the expected expiry before it makes the call, and does not check the result."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=100)
    bench.through(lambda call: Trip(error=internal()) if call.at < 26 else Trip())
    bench.run(until=25.01)
    lease = bench.lease("a")
    assert lease is not None
    assert bench.calls[0].outcomes == (Outcome.UNSURE,)
    assert (lease.expires_at, lease.extensions) == (30.0, 0)
    bench.run(until=27)
    assert 26 <= lease.expires_at - 30 < 27
    assert lease.extensions == 1
    bench.run(until=200)
    assert bench.lapses == []
    assert bench.message("a").is_deleted


@pytest.mark.parametrize(
    "error",
    [denied("ChangeMessageVisibility"), no_queue(), RuntimeError("not foreseen")],
    ids=lambda error: type(error).__name__ if isinstance(error, RuntimeError) else error.code,
)
def test_a_fatal_error_on_one_queue_does_not_end_the_extending_of_another(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that it calls fatal ends its loop that extends."""
    caplog.set_level(logging.CRITICAL)
    bench = ConsumerHarness(TERMS)
    bench.process("bad", queue="broken", takes=599)
    bench.process("good", takes=599)
    bench.through(lambda call: Trip(error=error) if call.queue == "broken" else Trip())
    bench.run(until=700)
    assert "good" not in {name for _, name in bench.lapses}
    assert "good" not in {name for _, _, name in bench.told(*BAD_NEWS)}
    assert len(bench.asked("extend", "good")) == 23
    assert bench.message("good").is_deleted


@pytest.mark.parametrize("how", ["released", "dropped"])
def test_skipped_messages_of_a_group_are_no_longer_extended(how: str) -> None:
    """It left those behind a failed one in its table: extended for twelve hours.

    Fixed there since: ProcessMessageGroupAsync_WhenMessageFails_
    RemovesSkippedMessagesFromInflightMetadata in DefaultMessageManagerTests.cs.
    """
    bench = ConsumerHarness(TERMS)
    bench.send("1", "2", "3", queue="work.fifo", group="g")
    bench.receive(queue="work.fifo")
    bench.run(until=26)
    extended = {name: len(bench.asked("extend", name)) for name in "123"}
    with bench.at_one_blow():
        bench.end("1", failed=True)
        for name in ("2", "3"):
            bench.end(name, failed=True) if how == "released" else bench.drop(name)
    assert len(bench.keeper) == (3 if how == "released" else 1)
    bench.run(until=1000)
    assert len(bench.keeper) == 0
    assert {name: len(bench.asked("extend", name)) for name in "123"} == extended
    assert bench.steal("work.fifo") == ["1", "2", "3"]


def test_extending_continues_during_a_shutdown_until_the_handlers_have_ended() -> None:
    """The token that stops its polling also stops its extending: the handlers end later."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=200)
    bench.at(10, shut_down_warmly)
    bench.run(until=300)
    assert len(bench.asked("extend", "a")) == 7
    assert bench.lapses == []
    assert bench.message("a").is_deleted


def test_an_entry_that_is_throttled_is_extended_again_before_it_lapses() -> None:
    """The first bug for one entry of a call that answers 200.

    The other message is in the retries, too: they are filled up, as every call is.
    """
    bench = ConsumerHarness(TERMS)
    bench.process("a", "b", takes=100)
    refused = {"b": throttled()}
    bench.through(lambda call: Trip(refused=refused) if call.at < 27 else Trip())
    bench.run(until=26.9)
    lease, throttled_lease = bench.lease("a"), bench.lease("b")
    assert lease is not None
    assert throttled_lease is not None
    assert (lease.attempts, throttled_lease.expires_at) == (0, 30.0)
    assert throttled_lease.attempts == len(bench.asked("extend", "b")) > 1
    bench.run(until=200)
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
