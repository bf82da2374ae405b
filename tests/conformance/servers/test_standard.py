"""When a message of a standard queue is hidden, and what handles and batches do with it.

Sources: G is the SQS Developer Guide, A the SQS API reference, L a test of LocalStack whose
answers were recorded from AWS.
"""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from botocore.exceptions import ClientError

from tests.conformance.servers.queue import STANDSTILL, Queue, refusal
from tests.conformance.servers.target import Target, differs


def one_message(server: Target, vt: int = 600) -> Queue:
    queue = server.queue(vt=vt)
    queue.send("a")
    return queue


def in_flight(server: Target, vt: int = 600) -> tuple[Queue, str]:
    queue = one_message(server, vt)
    return queue, queue.take()


def expired(server: Target) -> tuple[Queue, str]:
    """Return the expired handle of a message that no one else received."""
    queue, handle = in_flight(server, vt=1)
    queue.wait_until_visible()
    return queue, handle


def stale(server: Target, *, new_timeout: int) -> tuple[Queue, str]:
    """Return the handle of a receive before the latest one."""
    queue = one_message(server)
    handle = queue.take(VisibilityTimeout=0)
    queue.take(VisibilityTimeout=new_timeout)
    return queue, handle


def test_a_receive_hides_the_message_for_the_queues_timeout(server: Target) -> None:
    """G "Visibility timeout"; L test_receive_after_visibility_timeout."""
    queue = one_message(server, vt=1)
    since = time.monotonic()
    first, second = queue.take(), queue.take()
    assert time.monotonic() - since >= 0.95
    assert first != second


def test_a_receive_may_request_its_own_timeout(server: Target) -> None:
    """A ReceiveMessage, VisibilityTimeout; L test_receive_terminate_visibility_timeout."""
    queue = one_message(server)
    first, second = queue.take(VisibilityTimeout=0), queue.take()
    assert first != second
    since = time.monotonic()
    queue.extend(second, 0)
    queue.take(VisibilityTimeout=1)
    assert queue.comes_after(since) >= 1


@differs(ministack="takes it", localstack="takes it")
def test_a_receive_refuses_a_timeout_beyond_43200(server: Target) -> None:
    """A ReceiveMessage, VisibilityTimeout: 0 to 43200."""
    assert "InvalidParameterValue" in refusal(server.queue().look, VisibilityTimeout=43_201)


def test_receives_are_counted_and_the_time_of_the_first_stays(server: Target) -> None:
    """A ReceiveMessage, ApproximateReceiveCount and ApproximateFirstReceiveTimestamp."""
    queue = one_message(server, vt=0)
    time.sleep(0.5)
    received = []
    for _ in range(3):
        (message,) = queue.receive()
        received.append(message["Attributes"])
        time.sleep(0.2)
    assert [int(each["ApproximateReceiveCount"]) for each in received] == [1, 2, 3]
    (first,) = {int(each["ApproximateFirstReceiveTimestamp"]) for each in received}
    assert first - int(received[0]["SentTimestamp"]) >= 450


def test_a_change_counts_from_the_call(server: Target) -> None:
    """G "Visibility timeout"; L test_change_message_visibility_not_permanent."""
    queue, handle = in_flight(server)
    since = time.monotonic()
    queue.extend(handle, 1)
    assert queue.comes_after(since) >= 1


def test_an_extension_outlasts_the_first_timeout(server: Target) -> None:
    """L test_extend_message_visibility_timeout_set_in_queue."""
    queue, handle = in_flight(server, vt=STANDSTILL)
    since = time.monotonic()
    queue.extend(handle, STANDSTILL + 1)
    assert queue.comes_after(since) >= STANDSTILL + 1


def test_a_release_ends_a_pending_long_poll(server: Target) -> None:
    """G "Amazon SQS short and long polling": it answers as soon as a message is there."""
    queue, handle = in_flight(server)
    releasing = threading.Timer(0.7, queue.extend, (handle, 0))
    since = time.monotonic()
    releasing.start()
    came = queue.look(WaitTimeSeconds=20)
    releasing.join()
    assert came
    assert time.monotonic() - since < 15


def test_a_timeout_that_runs_out_ends_a_pending_long_poll(server: Target) -> None:
    """G "Amazon SQS short and long polling"."""
    queue, _ = in_flight(server, vt=1)
    since = time.monotonic()
    assert queue.look(WaitTimeSeconds=20)
    assert time.monotonic() - since < 15


@differs(moto="takes a negative one", ministack="takes it", localstack="takes it")
def test_a_change_refuses_a_timeout_out_of_range_and_leaves_the_old_one(server: Target) -> None:
    """A ChangeMessageVisibility, VisibilityTimeout: 0 to 43200."""
    queue = one_message(server, vt=1)
    since = time.monotonic()
    handle = queue.take()
    for timeout in (43_201, -1):
        assert "InvalidParameterValue" in refusal(queue.extend, handle, timeout)
    assert queue.comes_after(since) >= 1


@differs(ministack="knows no limit", localstack="knows no limit")
def test_no_change_reaches_past_12_hours_after_the_receive(server: Target) -> None:
    """G "Visibility timeout": refused, not shortened, and extending does not reset it."""
    queue, handle = in_flight(server)
    queue.extend(handle, 43_100)
    time.sleep(1.2)
    refused = refusal(queue.extend, handle, 43_200)
    assert "InvalidParameterValue" in refused
    assert "beyond the limit" in refused


@differs(moto="counts them from the send")
def test_the_12_hours_count_from_the_receive_and_not_from_the_send(server: Target) -> None:
    """G "Visibility timeout": a 12-hour limit from when SQS receives the ReceiveMessage."""
    queue = one_message(server)
    time.sleep(STANDSTILL + 1)
    queue.extend(queue.take(), 43_200 - STANDSTILL)


def test_a_delayed_message_comes_after_its_delay(server: Target) -> None:
    """A SendMessage, DelaySeconds."""
    queue, since = server.queue(), time.monotonic()
    queue.send("a", DelaySeconds=1)
    assert queue.comes_after(since) >= 1


def test_an_unknown_handle_or_queue_is_refused(server: Target) -> None:
    """L test_invalid_receipt_handle_should_return_error_message, test_delete_message_with_...;

    A, Common errors: QueueDoesNotExist.
    """
    queue = server.queue()
    assert "ReceiptHandleIsInvalid" in refusal(queue.extend, "garbage", 1)
    assert "ReceiptHandleIsInvalid" in refusal(queue.delete, "garbage")
    missing = refusal(queue.client.get_queue_url, QueueName="there-is-no-such-queue")
    assert "QueueDoesNotExist" in missing or "NonExistentQueue" in missing


@differs(moto="hides the message", ministack="hides the message")
def test_a_change_by_an_expired_handle_answers_success_and_changes_nothing(server: Target) -> None:
    """L test_change_message_visibility_after_visibility_timeout_expiration.

    "AWS simply sends back an OK and does nothing": github.com/localstack/localstack/pull/9632.
    """
    queue, handle = expired(server)
    queue.extend(handle, 600)
    queue.receive()


def test_a_delete_by_an_expired_handle_deletes(server: Target) -> None:
    """L test_delete_after_visibility_timeout, test_remove_message_with_old_receipt_handle."""
    queue, handle = expired(server)
    queue.delete(handle)
    assert not queue.look(WaitTimeSeconds=2)


@differs(ministack="refuses it: ReceiptHandleIsInvalid")
def test_a_change_by_a_stale_handle_breaks_the_new_owners_lease(server: Target) -> None:
    """L test_terminate_visibility_timeout_after_receive."""
    queue, handle = stale(server, new_timeout=600)
    queue.extend(handle, 0)
    queue.take(VisibilityTimeout=600)
    queue.extend(handle, 1)
    queue.receive()


@differs(ministack="refuses it: ReceiptHandleIsInvalid")
def test_a_delete_by_a_stale_handle_answers_success(server: Target) -> None:
    """A DeleteMessage: "the request succeeds, but the message might not be deleted"."""
    queue, handle = stale(server, new_timeout=600)
    queue.delete(handle)


@differs(moto="deletes the message", localstack="deletes the message")
def test_a_delete_by_a_stale_handle_deletes_nothing(server: Target) -> None:
    """A DeleteMessage: it takes the handle of the latest receive, or else "might not" delete."""
    queue, handle = stale(server, new_timeout=1)
    with contextlib.suppress(ClientError):
        queue.delete(handle)
    queue.receive()


@differs(
    moto="says ReceiptHandleIsInvalid instead of InvalidParameterValue",
    ministack="says ReceiptHandleIsInvalid instead of InvalidParameterValue",
)
def test_a_change_by_the_handle_of_a_deleted_message_is_refused(server: Target) -> None:
    """L test_change_visibility_on_deleted_message_raises_invalid_parameter_value."""
    queue, handle = in_flight(server)
    queue.delete(handle)
    refused = refusal(queue.extend, handle, 42)
    assert "InvalidParameterValue" in refused
    assert "does not exist or is not available" in refused


@differs(ministack="refuses it: ReceiptHandleIsInvalid")
def test_a_second_delete_answers_success(server: Target) -> None:
    """L test_delete_message_with_deleted_receipt_handle, alone and in a batch."""
    queue, handle = in_flight(server)
    queue.delete(handle)
    queue.delete(handle)
    assert queue.delete_batch(("a", handle)) == "a | "


def test_a_delete_after_an_extension_deletes(server: Target) -> None:
    """L test_delete_message_deletes_with_change_visibility_timeout."""
    queue, handle = in_flight(server, vt=1)
    queue.extend(handle, 2)
    queue.delete(handle)
    assert not queue.look(WaitTimeSeconds=3)


def test_a_batch_with_a_bad_handle_fails_that_entry_alone(server: Target) -> None:
    """A ChangeMessageVisibilityBatch: the result of each action, in an answer of 200."""
    queue, handle = in_flight(server)
    queue.send("b")
    deleted = queue.take()
    queue.delete(deleted)
    assert queue.extend_batch(("good", handle), ("bad", "garbage")) == "good | bad"
    assert queue.extend_batch(("good", handle), ("bad", deleted)) == "good | bad"
    assert queue.delete_batch(("good", handle), ("bad", "garbage")) == "good | bad"


@differs(localstack="says SenderFault false")
def test_a_bad_handle_in_a_batch_is_the_senders_fault(server: Target) -> None:
    """A BatchResultErrorEntry; as in github.com/aws/aws-sdk-java-v2/issues/3101."""
    queue = server.queue()
    entries = [{"Id": "bad", "ReceiptHandle": "garbage"}]
    answer = queue.client.delete_message_batch(QueueUrl=queue.url, Entries=entries)
    (failed,) = answer["Failed"]
    assert failed["Code"].endswith("ReceiptHandleIsInvalid")
    assert failed["SenderFault"] is True


@differs(ministack="takes it", localstack="takes it")
def test_a_timeout_out_of_range_in_a_batch_fails_that_entry(server: Target) -> None:
    """A ChangeMessageVisibilityBatch; the range is that of the single call."""
    queue, handle = in_flight(server)
    assert queue.extend_batch(("bad", handle), timeout=43_201) == " | bad"


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "EmptyBatchRequest"),
        (list("abcdefghijk"), "TooManyEntriesInBatchRequest"),
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        (["a:b"], "InvalidBatchEntryId"),
        (["a" * 81], "InvalidBatchEntryId"),
    ],
)
@differs(moto="does what it can of it, in a ChangeMessageVisibilityBatch")
def test_a_batch_is_refused_as_a_whole(server: Target, ids: list[str], code: str) -> None:
    """A ChangeMessageVisibilityBatch and DeleteMessageBatch, Errors; L test_invalid_batch_id."""
    queue, handle = in_flight(server)
    for batch in (queue.extend_batch, queue.delete_batch):
        assert code in refusal(batch, *((each, handle) for each in ids))
