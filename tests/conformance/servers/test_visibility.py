"""When a message is hidden and when it is visible.

Sources: G is the SQS Developer Guide, A the SQS API reference, L a test of LocalStack whose
answers were recorded from AWS.
"""

from __future__ import annotations

import threading
import time

from tests.conformance.servers.queue import EARLY, LONGEST_POLL, STANDSTILL, Queue, refusal
from tests.conformance.servers.target import Target


def test_a_receive_hides_the_message_for_the_queues_timeout(server: Target) -> None:
    """G "Visibility timeout"; L test_receive_after_visibility_timeout."""
    queue = server.queue(vt=1)
    queue.send("a")
    since = time.monotonic()
    first = queue.take()
    second = queue.take()
    assert time.monotonic() - since >= 0.95
    assert first != second


def test_a_receive_may_request_its_own_timeout(server: Target) -> None:
    """A ReceiveMessage, VisibilityTimeout."""
    queue = server.queue(vt=600)
    queue.send("a")
    since = time.monotonic()
    queue.take(VisibilityTimeout=1)
    assert queue.comes_after(since) >= 1


def test_a_receive_with_timeout_0_leaves_the_message_visible(server: Target) -> None:
    """L test_receive_terminate_visibility_timeout."""
    queue = server.queue(vt=600)
    queue.send("a")
    assert queue.take(VisibilityTimeout=0) != queue.take()


def test_a_receive_refuses_a_timeout_beyond_43200(server: Target) -> None:
    """A ReceiveMessage, VisibilityTimeout: 0 to 43200."""
    queue = server.queue()
    assert "InvalidParameterValue" in refusal(queue.look, VisibilityTimeout=43_201).codes


def test_the_receive_count_rises_with_each_receive(server: Target) -> None:
    """A ReceiveMessage, ApproximateReceiveCount."""
    queue = server.queue(vt=0)
    queue.send("a")
    counts = [_attribute(queue, "ApproximateReceiveCount") for _ in range(3)]
    assert counts == [1, 2, 3]


def test_the_first_receive_time_is_the_receives_own_when_it_is_the_first(server: Target) -> None:
    """A ReceiveMessage, ApproximateFirstReceiveTimestamp."""
    queue = server.queue()
    queue.send("a")
    time.sleep(0.5)
    (message,) = queue.receive()
    told = message["Attributes"]
    waited = int(told["ApproximateFirstReceiveTimestamp"]) - int(told["SentTimestamp"])
    assert waited >= 450


def test_the_first_receive_time_stays_with_later_receives(server: Target) -> None:
    """A ReceiveMessage, ApproximateFirstReceiveTimestamp."""
    queue = server.queue(vt=0)
    queue.send("a")
    first = _attribute(queue, "ApproximateFirstReceiveTimestamp")
    time.sleep(0.2)
    assert _attribute(queue, "ApproximateFirstReceiveTimestamp") == first


def test_a_change_counts_from_the_call(server: Target) -> None:
    """G "Visibility timeout"; L test_change_message_visibility_not_permanent."""
    queue = server.queue(vt=600)
    queue.send("a")
    handle = queue.take()
    since = time.monotonic()
    queue.extend(handle, 1)
    assert queue.comes_after(since) >= 1


def test_an_extension_outlasts_the_first_timeout(server: Target) -> None:
    """L test_extend_message_visibility_timeout_set_in_queue."""
    queue = server.queue(vt=STANDSTILL)
    queue.send("a")
    handle = queue.take()
    since = time.monotonic()
    queue.extend(handle, STANDSTILL + 1)
    assert queue.comes_after(since) >= STANDSTILL + 1


def test_a_release_makes_the_message_visible_at_once(server: Target) -> None:
    """L test_change_message_visibility_not_permanent."""
    queue = server.queue(vt=600)
    queue.send("a")
    queue.extend(queue.take(), 0)
    queue.receive()


def test_a_release_ends_a_pending_long_poll(server: Target) -> None:
    """G "Amazon SQS short and long polling": it answers as soon as a message is there."""
    queue = server.queue(vt=600)
    queue.send("a")
    handle = queue.take()
    releasing = threading.Timer(0.7, queue.extend, (handle, 0))
    since = time.monotonic()
    releasing.start()
    came = queue.look(WaitTimeSeconds=LONGEST_POLL)
    releasing.join()
    assert came
    assert time.monotonic() - since < EARLY


def test_a_timeout_that_runs_out_ends_a_pending_long_poll(server: Target) -> None:
    """G "Amazon SQS short and long polling"."""
    queue = server.queue(vt=1)
    queue.send("a")
    queue.take()
    since = time.monotonic()
    assert queue.look(WaitTimeSeconds=LONGEST_POLL)
    assert time.monotonic() - since < EARLY


def test_a_change_refuses_a_negative_timeout(server: Target) -> None:
    """A ChangeMessageVisibility, VisibilityTimeout: 0 to 43200."""
    queue = server.queue()
    queue.send("a")
    assert "InvalidParameterValue" in refusal(queue.extend, queue.take(), -1).codes


def test_a_change_refuses_a_timeout_beyond_43200(server: Target) -> None:
    """A ChangeMessageVisibility, VisibilityTimeout: 0 to 43200."""
    queue = server.queue()
    queue.send("a")
    assert "InvalidParameterValue" in refusal(queue.extend, queue.take(), 43_201).codes


def test_a_refused_change_leaves_the_old_timeout(server: Target) -> None:
    """A ChangeMessageVisibility: an error, and so no change."""
    queue = server.queue(vt=1)
    queue.send("a")
    since = time.monotonic()
    handle = queue.take()
    refusal(queue.extend, handle, 43_201)
    assert queue.comes_after(since) >= 1


def test_no_change_reaches_past_12_hours_after_the_receive(server: Target) -> None:
    """G "Visibility timeout": refused, not shortened, and extending does not reset it."""
    queue = server.queue()
    queue.send("a")
    handle = queue.take()
    queue.extend(handle, 43_100)
    time.sleep(1.2)
    refused = refusal(queue.extend, handle, 43_200)
    assert "InvalidParameterValue" in refused.codes
    assert "beyond the limit" in refused.text


def test_the_12_hours_count_from_the_receive_and_not_from_the_send(server: Target) -> None:
    """G "Visibility timeout": a 12-hour limit from when SQS receives the ReceiveMessage."""
    queue = server.queue()
    queue.send("a")
    time.sleep(STANDSTILL + 1)
    queue.extend(queue.take(), 43_200 - STANDSTILL)


def test_a_delayed_message_comes_after_its_delay(server: Target) -> None:
    """A SendMessage, DelaySeconds."""
    queue = server.queue()
    since = time.monotonic()
    queue.send("a", DelaySeconds=1)
    assert queue.comes_after(since) >= 1


def _attribute(queue: Queue, name: str) -> int:
    (message,) = queue.receive()
    return int(message["Attributes"][name])
