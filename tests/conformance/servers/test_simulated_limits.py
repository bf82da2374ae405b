"""Limits of SQS that only the simulation can show: others lack the option or take hours.

Sources as in test_visibility.py.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.conformance.servers.queue import EARLY, LONGEST_POLL, Queue, bodies, refusal
from tests.support.waiting import wait_until

HOUR = 3600


def test_thirteen_hours_of_heartbeats_end_after_twelve(simulated: SimulatedServer) -> None:
    """G "Visibility timeout": 12 hours from the receive, however often it is extended."""
    queue = _queue(simulated)
    queue.send("a")
    handle = queue.take(VisibilityTimeout=HOUR)
    lasted = 0.0
    refused: ClientError | None = None
    while refused is None:
        simulated.advance(HOUR / 2)
        lasted += 0.5
        try:
            queue.extend(handle, HOUR)
        except ClientError as error:
            refused = error
    # The extension after 11 h would be good for 12 h and the moment since the receive.
    assert lasted == 11
    assert "beyond the limit" in str(refused)
    assert not queue.look()
    simulated.advance(HOUR / 2)
    assert queue.look()


def test_another_receive_starts_another_twelve_hours(simulated: SimulatedServer) -> None:
    """G "Visibility timeout": the limit counts from each receive."""
    queue = _queue(simulated)
    queue.send("a")
    queue.take(VisibilityTimeout=HOUR)
    simulated.advance(13 * HOUR)
    queue.extend(queue.take(), 43_100)


def test_a_jump_over_the_timeout_ends_a_pending_long_poll(simulated: SimulatedServer) -> None:
    """G "Amazon SQS short and long polling"."""
    queue = _queue(simulated)
    queue.send("a")
    queue.take(VisibilityTimeout=HOUR)
    with ThreadPoolExecutor() as pool:
        since = time.monotonic()
        polling = pool.submit(queue.look, WaitTimeSeconds=LONGEST_POLL)
        _wait_for_poll(simulated)
        simulated.advance(HOUR + 1)
        assert polling.result()
    assert time.monotonic() - since < EARLY


def test_too_many_messages_in_flight_refuse_a_short_poll(simulated: SimulatedServer) -> None:
    """A ReceiveMessage, OverLimit; G "Amazon SQS message quotas"."""
    queue = _full(simulated)
    assert "OverLimit" in refusal(queue.look).codes


def test_too_many_messages_in_flight_leave_a_long_poll_empty(simulated: SimulatedServer) -> None:
    """G "Amazon SQS message quotas": no error with long polling."""
    queue = _full(simulated)
    assert queue.look(WaitTimeSeconds=1) == []


def test_too_many_messages_in_flight_leave_a_poll_of_a_fifo_queue_empty(
    simulated: SimulatedServer,
) -> None:
    """G "Amazon SQS message quotas": a FIFO queue returns no error, however it is polled."""
    queue = _fifo(simulated)
    simulated.sqs.queue(queue.url).options.in_flight_limit = 2
    queue.send_to_group("g", "a", "b", "c")
    queue.send_to_group("h", "d")
    assert len(queue.look(10)) == 2
    assert queue.look() == []


def test_a_long_backlog_of_one_group_hides_the_groups_behind_it(simulated: SimulatedServer) -> None:
    """G "Avoid large message backlogs with the same message group ID": 120,000 at AWS."""
    queue = _fifo(simulated)
    simulated.sqs.queue(queue.url).options.scanned_messages = 3
    queue.send_to_group("g", "g1", "g2", "g3")
    queue.send_to_group("h", "h1")
    handle = queue.take()
    assert not queue.look()
    queue.delete(handle)
    assert bodies(queue.look()) == ["g2", "g3", "h1"]


def test_a_delete_makes_room_for_a_pending_long_poll(simulated: SimulatedServer) -> None:
    """G "Amazon SQS message quotas": delete messages to avoid the limit."""
    queue = _full(simulated, vt=HOUR)
    handle = next(iter(simulated.sqs.queue(queue.url).messages.values())).handle
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(queue.look, WaitTimeSeconds=LONGEST_POLL)
        _wait_for_poll(simulated)
        queue.delete(handle)
        assert len(polling.result()) == 1


def test_a_purge_deletes_messages_in_flight(simulated: SimulatedServer) -> None:
    """L test_purge_queue_deletes_inflight_messages; AWS takes up to a minute for it."""
    queue = _queue(simulated)
    queue.send("a", "b")
    handle = queue.take()
    queue.client.purge_queue(QueueUrl=queue.url)
    simulated.advance(HOUR)
    assert not queue.look()
    queue.delete(handle)
    assert "InvalidParameterValue" in refusal(queue.extend, handle, 5).codes


def _wait_for_poll(simulated: SimulatedServer) -> None:
    """Return once the second receive has come to the server."""
    wait_until(lambda: simulated.calls()["ReceiveMessage"] == 2)


def _queue(simulated: SimulatedServer) -> Queue:
    client = simulated.client()
    return Queue(client, client.create_queue(QueueName="work")["QueueUrl"])


def _fifo(simulated: SimulatedServer) -> Queue:
    client = simulated.client()
    created = client.create_queue(QueueName="work.fifo", Attributes={"FifoQueue": "true"})
    return Queue(client, created["QueueUrl"])


def _full(simulated: SimulatedServer, *, vt: int = 30) -> Queue:
    """Return a queue with the two messages in flight that it allows, and a third."""
    queue = _queue(simulated)
    simulated.sqs.queue(queue.url).options.in_flight_limit = 2
    queue.send("a", "b", "c")
    assert len(queue.look(10, VisibilityTimeout=vt)) == 2
    return queue
