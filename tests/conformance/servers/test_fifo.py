"""FIFO queues: handles, groups, deduplication. Sources as in test_visibility.py."""

from __future__ import annotations

import time

from tests.conformance.servers.queue import STANDSTILL, Queue, bodies, refusal
from tests.conformance.servers.target import Target

#: How SQS says that a handle has had its time. Which, it is not known of every call.
OVER = {"InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid"}


def test_a_fifo_delete_by_an_expired_handle_is_refused(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout."""
    queue, handle = _expired(server)
    refused = refusal(queue.delete, handle)
    assert "InvalidParameterValue" in refused.codes
    assert "The receipt handle has expired" in refused.text


def test_a_fifo_delete_after_an_extension_deletes(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout_extended."""
    queue = server.fifo(vt=STANDSTILL)
    queue.send_to_group("g", "a")
    handle = queue.take()
    queue.extend(handle, 600)
    time.sleep(STANDSTILL + 0.2)
    queue.delete(handle)
    assert not queue.look()


def test_a_fifo_change_by_an_expired_handle_is_refused(server: Target) -> None:
    """As reported in github.com/aws/aws-sdk-js-v3/issues/2983 and .../piped/issues/12."""
    queue, handle = _expired(server)
    assert refusal(queue.extend, handle, 5).codes & OVER


def test_a_fifo_change_by_a_stale_handle_is_refused(server: Target) -> None:
    """As the one before: the time of that receive is over, too."""
    queue, stale = _stale(server)
    assert refusal(queue.extend, stale, 5).codes & OVER


def test_a_fifo_delete_by_a_stale_handle_is_refused(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout: its time is over, too."""
    queue, stale = _stale(server)
    assert refusal(queue.delete, stale).codes & OVER


def test_a_fifo_batch_with_an_expired_handle_fails_that_entry_alone(server: Target) -> None:
    """As reported in github.com/smaskalik/sqsmover/issues/54."""
    queue = server.fifo()
    queue.send_to_group("g", "a")
    queue.send_to_group("h", "b")
    expired, good = (message["ReceiptHandle"] for message in queue.receive(10))
    queue.extend(expired, 1)
    queue.wait_until_visible()
    answer = queue.delete_batch(("good", good), ("bad", expired))
    assert [entry["Id"] for entry in answer.get("Failed", [])] == ["bad"]


def test_a_group_waits_while_its_first_message_is_in_flight(server: Target) -> None:
    """L test_fifo_message_group_visibility; G "FIFO delivery logic"."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2")
    handle = queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    queue.delete(handle)
    assert bodies(queue.receive()) == ["2"]


def test_other_groups_go_on_meanwhile(server: Target) -> None:
    """L test_fifo_receive_message_visibility_timeout_shared_in_group."""
    queue = server.fifo()
    queue.send_to_group("g", "g1", "g2")
    queue.send_to_group("h", "h1")
    queue.take()
    assert bodies(queue.receive(10)) == ["h1"]


def test_a_receive_brings_several_of_one_group_in_order(server: Target) -> None:
    """L test_fifo_messages_in_order_after_timeout."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2", "3")
    assert bodies(queue.receive(10)) == ["1", "2", "3"]


def test_a_receive_fills_up_from_one_group_first(server: Target) -> None:
    """L test_fifo_receive_message_group_id_ordering; G "FIFO delivery logic"."""
    queue = server.fifo()
    queue.send_to_group("g", "g1")
    queue.send_to_group("h", "h1")
    queue.send_to_group("g", "g2")
    assert bodies(queue.receive(10)) == ["g1", "g2", "h1"]


def test_the_order_stays_after_the_timeout(server: Target) -> None:
    """L test_fifo_messages_in_order_after_timeout."""
    queue = server.fifo(vt=1)
    queue.send_to_group("g", "1", "2", "3")
    queue.receive(10)
    queue.wait_until_visible(3)
    assert bodies(queue.receive(10)) == ["1", "2", "3"]


def test_what_is_released_before_one_in_flight_comes_again(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_terminate_visibility_timeout."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2", "3")
    first, *_ = queue.receive(10)
    queue.extend(first["ReceiptHandle"], 0)
    assert bodies(queue.receive(10)) == ["1"]


def test_what_comes_behind_one_in_flight_waits_though_its_time_is_over(server: Target) -> None:
    """L test_fifo_group_visibility_extends_with_change_message_visibility."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2", "3")
    first, _, third = queue.receive(10)
    for over in (third, first):
        queue.extend(over["ReceiptHandle"], 1)
    queue.wait_until_visible()
    assert bodies(queue.receive(10)) == ["1"]


def test_an_equal_deduplication_id_sends_nothing_new(server: Target) -> None:
    """L test_fifo_deduplication_arrives_once_after_delete."""
    queue = server.fifo()
    for _ in range(2):
        queue.send("a", MessageGroupId="g", MessageDeduplicationId="same")
    queue.delete(queue.take())
    queue.send("a", MessageGroupId="g", MessageDeduplicationId="same")
    assert not queue.look(WaitTimeSeconds=1)


def test_an_equal_body_sends_nothing_new_with_content_based_deduplication(server: Target) -> None:
    """L test_fifo_content_based_message_deduplication_arrives_once."""
    queue = server.fifo(content_based=True)
    for _ in range(2):
        queue.send("a", MessageGroupId="g")
    queue.delete(queue.take())
    assert not queue.look(WaitTimeSeconds=1)


def test_a_fifo_send_without_deduplication_is_refused(server: Target) -> None:
    """L test_posting_to_fifo_requires_deduplicationid_group_id."""
    refused = refusal(server.fifo().send, "a", MessageGroupId="g")
    assert "InvalidParameterValue" in refused.codes
    assert "ContentBasedDeduplication enabled" in refused.text


def test_a_fifo_send_without_a_group_is_refused(server: Target) -> None:
    """L test_posting_to_fifo_requires_deduplicationid_group_id."""
    refused = refusal(server.fifo().send, "a", MessageDeduplicationId="1")
    assert "MissingParameter" in refused.codes


def test_a_fifo_send_with_a_delay_of_its_own_is_refused(server: Target) -> None:
    """L test_fifo_queue_send_message_with_delay_seconds_fails."""
    refused = refusal(
        server.fifo().send, "a", MessageGroupId="g", MessageDeduplicationId="1", DelaySeconds=2
    )
    assert "InvalidParameterValue" in refused.codes


def _expired(server: Target) -> tuple[Queue, str]:
    queue = server.fifo(vt=1)
    queue.send_to_group("g", "a")
    handle = queue.take()
    queue.wait_until_visible()
    return queue, handle


def _stale(server: Target) -> tuple[Queue, str]:
    queue = server.fifo()
    queue.send_to_group("g", "a")
    stale = queue.take(VisibilityTimeout=0)
    queue.take()
    return queue, stale
