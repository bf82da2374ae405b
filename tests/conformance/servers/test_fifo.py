"""FIFO queues: handles, deduplication, sequence numbers. Sources as in test_visibility.py."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from botocore.exceptions import ClientError

from tests.conformance.servers.queue import STANDSTILL, Queue, bodies, refusal
from tests.conformance.servers.target import Target

#: The codes for an expired handle. Which of them SQS returns is not known for every call.
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


def test_a_fifo_change_by_an_expired_handle_changes_nothing(server: Target) -> None:
    """As the one before: refused or not, the message can be received."""
    queue, handle = _expired(server)
    with contextlib.suppress(ClientError):
        queue.extend(handle, 600)
    assert bodies(queue.receive(VisibilityTimeout=600)) == ["a"]


def test_a_fifo_change_by_a_stale_handle_is_refused(server: Target) -> None:
    """As the one before: the timeout of that receive has ended, too."""
    queue, stale = _stale(server)
    assert refusal(queue.extend, stale, 5).codes & OVER


def test_a_fifo_delete_by_a_stale_handle_is_refused(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout: its timeout has ended, too."""
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


def test_a_fifo_batch_that_extends_by_an_expired_handle_fails_that_entry_alone(
    server: Target,
) -> None:
    """As the one before, for ChangeMessageVisibilityBatch."""
    queue = server.fifo()
    queue.send_to_group("g", "a")
    queue.send_to_group("h", "b")
    expired, good = (message["ReceiptHandle"] for message in queue.receive(10))
    queue.extend(expired, 1)
    queue.wait_until_visible()
    answer = queue.extend_batch(("good", good, 600), ("bad", expired, 600))
    assert [entry["Id"] for entry in answer.get("Failed", [])] == ["bad"]


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


def test_a_fifo_send_with_its_own_delay_is_refused(server: Target) -> None:
    """L test_fifo_queue_send_message_with_delay_seconds_fails."""
    refused = refusal(
        server.fifo().send, "a", MessageGroupId="g", MessageDeduplicationId="1", DelaySeconds=2
    )
    assert "InvalidParameterValue" in refused.codes


def test_sequence_numbers_rise_within_a_group(server: Target) -> None:
    """A SendMessage, SequenceNumber; L test_fifo_sequence_number_increases."""
    queue = server.fifo()
    queue.send_to_group("g", *"abcdefghijkl")
    first = queue.receive(10)
    queue.delete_batch(*((str(n), each["ReceiptHandle"]) for n, each in enumerate(first)))
    second = queue.receive(10)
    numbers = [_sequence_number(message) for message in first + second]
    assert bodies(first + second) == list("abcdefghijkl")
    assert numbers == sorted(set(numbers))


def test_sequence_numbers_rise_from_group_to_group_and_have_20_digits(server: Target) -> None:
    """As numbers of AWS in public records show (testing/sequence.py); not promised (A)."""
    queue = server.fifo()
    for number in range(10):
        queue.send_to_group("ghi"[number % 3], str(number))
    received = sorted(queue.receive(10), key=lambda message: int(message["Body"]))
    numbers = [_sequence_number(message) for message in received]
    assert len(numbers) == 10
    assert numbers == sorted(set(numbers))
    assert {len(str(number)) for number in numbers} == {20}


def test_a_message_keeps_its_sequence_number(server: Target) -> None:
    """L test_fifo_message_attributes."""
    queue = server.fifo(vt=0)
    queue.send_to_group("g", "a")
    first, second = (_sequence_number(message) for _ in range(2) for message in queue.receive())
    assert first == second


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


def _sequence_number(message: dict[str, Any]) -> int:
    return int(message["Attributes"]["SequenceNumber"])
