"""Batch calls: faults of the whole call and of single entries. Sources as in test_visibility.py."""

from __future__ import annotations

from typing import Any

from tests.conformance.servers.queue import Queue, refusal
from tests.conformance.servers.target import Target


def test_a_batch_with_a_bad_handle_fails_that_entry_alone(server: Target) -> None:
    """A ChangeMessageVisibilityBatch: the result of each action, in an answer of 200."""
    queue, handle = _in_flight(server)
    answer = queue.extend_batch(("good", handle, 5), ("bad", "garbage", 5))
    assert _outcomes(answer) == (["good"], ["bad"])


def test_a_bad_handle_in_a_batch_is_the_senders_fault(server: Target) -> None:
    """A BatchResultErrorEntry; as in github.com/aws/aws-sdk-java-v2/issues/3101."""
    (failed,) = server.queue().delete_batch(("bad", "garbage"))["Failed"]
    assert failed["Code"].endswith("ReceiptHandleIsInvalid")
    assert failed["SenderFault"] is True


def test_a_batch_with_a_timeout_out_of_range_fails_that_entry_alone(server: Target) -> None:
    """A ChangeMessageVisibilityBatch; the range is that of the single call."""
    queue, handle = _in_flight(server)
    answer = queue.extend_batch(("good", handle, 5), ("bad", handle, 43_201))
    assert _outcomes(answer) == (["good"], ["bad"])


def test_a_batch_with_a_deleted_handle_fails_that_entry_alone(server: Target) -> None:
    """L test_change_visibility_on_deleted_message_raises_..., entry by entry."""
    queue, handle = _in_flight(server)
    queue.send("b")
    deleted = queue.take()
    queue.delete(deleted)
    answer = queue.extend_batch(("good", handle, 5), ("bad", deleted, 5))
    assert _outcomes(answer) == (["good"], ["bad"])


def test_a_delete_batch_with_a_bad_handle_fails_that_entry_alone(server: Target) -> None:
    """A DeleteMessageBatch: the result of each action, in an answer of 200."""
    queue, handle = _in_flight(server)
    answer = queue.delete_batch(("good", handle), ("bad", "garbage"))
    assert _outcomes(answer) == (["good"], ["bad"])


def test_a_delete_batch_repeats_without_harm(server: Target) -> None:
    """L test_delete_message_with_deleted_receipt_handle, in a batch."""
    queue, handle = _in_flight(server)
    queue.delete_batch(("a", handle))
    assert _outcomes(queue.delete_batch(("a", handle))) == (["a"], [])


def test_an_empty_batch_is_refused(server: Target) -> None:
    """A ChangeMessageVisibilityBatch, EmptyBatchRequest."""
    assert "EmptyBatchRequest" in refusal(server.queue().extend_batch).codes


def test_a_batch_of_eleven_is_refused(server: Target) -> None:
    """L test_change_message_visibility_batch_with_too_large_batch."""
    eleven = [(f"id-{n}", f"handle-{n}", 5) for n in range(11)]
    refused = refusal(server.queue().extend_batch, *eleven)
    assert "TooManyEntriesInBatchRequest" in refused.codes


def test_a_delete_batch_of_eleven_is_refused(server: Target) -> None:
    """L test_delete_message_batch_with_too_large_batch."""
    eleven = [(f"id-{n}", f"handle-{n}") for n in range(11)]
    refused = refusal(server.queue().delete_batch, *eleven)
    assert "TooManyEntriesInBatchRequest" in refused.codes


def test_a_batch_with_equal_ids_is_refused(server: Target) -> None:
    """A ChangeMessageVisibilityBatch, BatchEntryIdsNotDistinct."""
    queue, handle = _in_flight(server)
    refused = refusal(queue.extend_batch, ("a", handle, 5), ("a", handle, 5))
    assert "BatchEntryIdsNotDistinct" in refused.codes


def test_a_delete_batch_with_equal_ids_is_refused(server: Target) -> None:
    """A DeleteMessageBatch, BatchEntryIdsNotDistinct."""
    queue, handle = _in_flight(server)
    refused = refusal(queue.delete_batch, ("a", handle), ("a", handle))
    assert "BatchEntryIdsNotDistinct" in refused.codes


def test_a_batch_with_an_invalid_id_is_refused(server: Target) -> None:
    """A ChangeMessageVisibilityBatch, InvalidBatchEntryId; L test_invalid_batch_id."""
    queue, handle = _in_flight(server)
    assert "InvalidBatchEntryId" in refusal(queue.extend_batch, ("a:b", handle, 5)).codes


def test_a_delete_batch_with_an_invalid_id_is_refused(server: Target) -> None:
    """L test_delete_message_batch_invalid_msg_id."""
    queue, handle = _in_flight(server)
    assert "InvalidBatchEntryId" in refusal(queue.delete_batch, ("a" * 81, handle)).codes


def _in_flight(server: Target) -> tuple[Queue, str]:
    queue = server.queue()
    queue.send("a")
    return queue, queue.take()


def _outcomes(answer: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids that succeeded and those that failed."""
    successful, failed = answer.get("Successful", []), answer.get("Failed", [])
    return [entry["Id"] for entry in successful], [entry["Id"] for entry in failed]
