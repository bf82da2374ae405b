"""taskiq-aio-sqs, the Pub/Sub leaser, kombu's gcpubsub and spring-cloud-aws.

Sources: vonsteer/taskiq-aio-sqs, taskiq_aio_sqs/sqs_broker.py; googleapis/python-pubsub,
google/cloud/pubsub_v1/subscriber/_protocol/leaser.py; celery/kombu,
kombu/transport/gcpubsub.py; awspring/spring-cloud-aws, spring-cloud-aws-sqs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing.errors import SqsError, internal, throttled
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Trip

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
URL = "https://sqs"


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
def test_no_client_error_ends_the_heartbeat(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """taskiq-aio-sqs: any error of the client ends the message's heartbeat."""
    caplog.set_level(logging.WARNING)
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=200)
    bench.through(lambda call: Trip(error=error) if call.at < 28 else Trip())
    bench.run(until=300)
    assert bench.calls[0].outcomes[0] is not Outcome.DONE
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
    assert bench.message("a").is_deleted
    assert caplog.records == []


def test_the_time_spent_in_a_call_is_taken_off_the_lease() -> None:
    """Pub/Sub leaser: it slept its whole interval after a call of 3 s. Here it takes 1 s.

    So a lease counts from before its call was sent, and the next call is due a threshold
    before its end.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=10, threshold=4))
    bench.process("a", takes=120)
    bench.through(lambda call: Trip(back=1))
    bench.run(until=9.5)
    lease = bench.lease("a")
    assert lease is not None
    assert bench.asked("extend", "a") == [6.0]
    assert (lease.expires_at, lease.extend_at) == (16.0, 12.0)
    bench.run(until=119)
    assert bench.asked("extend", "a") == [6.0 * beat for beat in range(1, 20)]
    assert bench.lapses == []


@pytest.mark.parametrize(
    "reject",
    [
        pytest.param(lambda bench: bench.end("a", failed=True), id="requeued"),
        pytest.param(lambda bench: bench.end("a"), id="thrown away"),
        pytest.param(lambda bench: bench.drop("a"), id="left to the redrive policy"),
    ],
)
def test_a_rejected_message_is_not_extended_any_more(
    reject: Callable[[ConsumerHarness], Any],
) -> None:
    """kombu gcpubsub: `reject` leaves the message in the table of those to be extended.

    The three ways in which our channel handles a reject.
    """
    bench = ConsumerHarness(TERMS)
    bench.send("a", "b")
    bench.receive()
    bench.run(until=25)
    extensions = bench.asked("extend", "a")
    assert extensions == [20.0]
    reject(bench)
    bench.run(until=5_000)
    assert bench.asked("extend", "a") == extensions
    assert bench.message("a").is_deleted or bench.message("a").visible_at <= 50
    assert len(bench.keeper) == 1


@pytest.mark.parametrize("action", ["extend", "release", "delete"])
def test_an_entry_that_failed_in_a_batch_does_not_count_as_done(action: str) -> None:
    """spring-cloud-aws: it looks at whether the call failed, never at `Failed`.

    One of ten entries is refused at first. It is sent again, and then succeeds. The nine
    others are not sent again, except for extensions, which fill up the second call.
    """
    names = [f"m{number}" for number in range(10)]
    bench = ConsumerHarness(TERMS)
    bench.process(*names, takes=21 if action == "extend" else 1, failed=action == "release")
    first_try = 20.0 if action == "extend" else 1.0
    bench.through(
        lambda call: Trip(refused={"m3": throttled()}) if call.at == first_try else Trip()
    )
    bench.run(until=first_try + 0.9)
    first, second = bench.calls
    assert first.outcomes.count(Outcome.DONE) == 9
    assert second.names == (names if action == "extend" else ["m3"])
    bench.run(until=100)
    assert len(bench.keeper) == 0
    assert bench.lapses == []
    assert all(bench.message(name).is_deleted is (action != "release") for name in names)


def test_a_message_is_known_by_its_handle_and_not_by_equality() -> None:
    """spring-cloud-aws: removal by an equal but other object removed nothing, silently.

    The handle that ends the message is an equal string, but another object.
    """
    bench = ConsumerHarness(TERMS)
    bench.send("a", "b")
    bench.receive()
    handle = bench.handle("a")
    copy = "".join(list(handle))
    assert copy is not handle
    assert bench.keeper.find(copy) is bench.lease("a")
    assert bench.keeper.done(copy)
    bench.wake()
    bench.run(until=1)
    assert len(bench.keeper) == 1
    assert bench.message("a").is_deleted
    assert not bench.message("b").is_deleted
