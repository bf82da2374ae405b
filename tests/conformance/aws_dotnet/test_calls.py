"""The entries of a call, and the possible answers.

Source: aws/aws-dotnet-messaging, test/AWS.Messaging.UnitTests/SQSMessagePollerTests.cs.
"""

from __future__ import annotations

import logging

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing.errors import SqsError
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Trip

TERMS = LeaseTerms(visibility_timeout=30, threshold=5)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def test_15_entries_go_in_two_calls() -> None:
    """SQSMessagePoller_ExtendMessageVisibility_RequestHasMoreThan10Entries."""
    names = [f"m{number:02}" for number in range(15)]
    bench = ConsumerHarness(TERMS)
    bench.process(*names, takes=40)
    bench.run(until=30)
    assert [(call.at, call.action, len(call.asks)) for call in bench.calls] == [
        (25.0, "extend", 10),
        (25.0, "extend", 5),
    ]
    assert sorted(name for call in bench.calls for name in call.names) == names
    assert {outcome for call in bench.calls for outcome in call.outcomes} == {Outcome.DONE}


def test_two_deletes_share_a_call() -> None:
    """SQSMessagePoller_DeleteMessages_Success."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", "b", takes=1)
    bench.run(until=10)
    assert [(call.action, call.names) for call in bench.calls] == [("delete", ["a", "b"])]


@pytest.mark.parametrize("queue", ["work", "work.fifo"])
def test_a_message_deleted_meanwhile_logs_no_error(
    queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SQSMessagePoller_ExtendsAlreadyDeleteMessage_OnlyLogsTrace, deleted by someone else.

    The framework logs it at trace level, because its own delete may overtake its extension.
    Ours cannot (next test), so another consumer deleted the message: a warning.
    """
    caplog.set_level(logging.DEBUG, "celery_sqs_heartbeat")
    bench = ConsumerHarness(TERMS)
    bench.send("a", "b", queue=queue, group="g" if queue.endswith("fifo") else None)
    bench.receive(queue=queue)
    bench.at(10, lambda: bench.delete_elsewhere("a"))
    bench.run(until=90)
    assert bench.told(*BAD_NEWS) == [(25.0, EventKind.LEASE_LOST, "a")]
    assert bench.asked("extend", "a") == [25.0]
    assert bench.asked("extend", "b") == [25.0, 50.0, 75.0]
    bench.end("a")
    bench.end("b")
    bench.run(until=100)
    assert len(bench.keeper) == 0
    assert errors(caplog) == []


def test_a_refusal_in_the_words_of_its_test_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The same test by the answer that it mocks, code and text."""
    caplog.set_level(logging.DEBUG, "celery_sqs_heartbeat")
    gone = SqsError(
        "ReceiptHandleIsInvalid",
        "Message does not exist or is not available for visibility timeout change",
    )
    bench = ConsumerHarness(TERMS)
    bench.process("a", "b", takes=60)
    bench.through(lambda call: Trip(refused={"a": gone} if call.action == "extend" else {}))
    bench.run(until=100)
    assert bench.told(*BAD_NEWS) == [(25.0, EventKind.LEASE_LOST, "a")]
    assert errors(caplog) == []


def test_a_handler_that_ends_while_its_extension_is_under_way_makes_no_refusal() -> None:
    """The race behind the framework's trace message does not exist here.

    The delete waits for the extension's answer: one call of a lease at a time.
    """
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=26)
    bench.through(lambda call: Trip(there=0.75, back=0.75))
    bench.run(until=60)
    extension, delete = bench.calls
    assert (extension.at, extension.arrived_at, extension.action) == (25.0, 25.75, "extend")
    assert (delete.at, delete.action) == (26.5, "delete")
    assert extension.outcomes == delete.outcomes == (Outcome.DONE,)
    assert bench.told(*BAD_NEWS) == []
