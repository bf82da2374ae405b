"""What receipt handles can do on a standard queue. Sources as in test_visibility.py."""

from __future__ import annotations

import contextlib

from botocore.exceptions import ClientError

from tests.conformance.servers.queue import Queue, refusal
from tests.conformance.servers.target import Target


def test_an_unknown_handle_is_refused_by_a_change(server: Target) -> None:
    """L test_invalid_receipt_handle_should_return_error_message."""
    assert "ReceiptHandleIsInvalid" in refusal(server.queue().extend, "garbage", 1).codes


def test_an_unknown_handle_is_refused_by_a_delete(server: Target) -> None:
    """L test_delete_message_with_illegal_receipt_handle."""
    assert "ReceiptHandleIsInvalid" in refusal(server.queue().delete, "garbage").codes


def test_a_change_by_an_expired_handle_answers_success(server: Target) -> None:
    """L test_change_message_visibility_after_visibility_timeout_expiration."""
    queue, handle = _expired(server)
    queue.extend(handle, 2)


def test_a_change_by_an_expired_handle_changes_nothing(server: Target) -> None:
    """G "Visibility timeout": any consumer may receive a message that is visible again.

    "AWS simply sends back an OK and does nothing": github.com/localstack/localstack/pull/9632.
    """
    queue, handle = _expired(server)
    queue.extend(handle, 600)
    queue.receive()


def test_a_delete_by_an_expired_handle_deletes(server: Target) -> None:
    """L test_delete_after_visibility_timeout, test_remove_message_with_old_receipt_handle."""
    queue, handle = _expired(server)
    queue.delete(handle)
    assert not queue.look(WaitTimeSeconds=2)


def test_a_release_by_a_stale_handle_breaks_the_new_owners_lease(server: Target) -> None:
    """L test_terminate_visibility_timeout_after_receive."""
    queue, stale = _stale(server, new_timeout=600)
    queue.extend(stale, 0)
    queue.receive()


def test_a_change_by_a_stale_handle_moves_the_new_owners_lease(server: Target) -> None:
    """The same call as the release before, with another number."""
    queue, stale = _stale(server, new_timeout=600)
    queue.extend(stale, 1)
    queue.receive()


def test_a_delete_by_a_stale_handle_answers_success(server: Target) -> None:
    """A DeleteMessage: "the request succeeds, but the message might not be deleted"."""
    queue, stale = _stale(server, new_timeout=600)
    queue.delete(stale)


def test_a_delete_by_a_stale_handle_deletes_nothing(server: Target) -> None:
    """A DeleteMessage: it takes the handle of the latest receive, or else "might not" delete."""
    queue, stale = _stale(server, new_timeout=1)
    with contextlib.suppress(ClientError):
        queue.delete(stale)
    queue.receive()


def test_a_change_by_the_handle_of_a_deleted_message_is_refused(server: Target) -> None:
    """L test_change_visibility_on_deleted_message_raises_invalid_parameter_value."""
    queue = server.queue()
    queue.send("a")
    handle = queue.take()
    queue.delete(handle)
    refused = refusal(queue.extend, handle, 42)
    assert "InvalidParameterValue" in refused.codes
    assert "does not exist or is not available" in refused.text


def test_a_second_delete_answers_success(server: Target) -> None:
    """L test_delete_message_with_deleted_receipt_handle."""
    queue = server.queue()
    queue.send("a")
    handle = queue.take()
    queue.delete(handle)
    queue.delete(handle)


def test_a_delete_after_an_extension_deletes(server: Target) -> None:
    """L test_delete_message_deletes_with_change_visibility_timeout."""
    queue = server.queue(vt=1)
    queue.send("a")
    handle = queue.take()
    queue.extend(handle, 2)
    queue.delete(handle)
    assert not queue.look(WaitTimeSeconds=3)


def test_a_missing_queue_is_reported_as_missing(server: Target) -> None:
    """A, Common errors: QueueDoesNotExist."""
    queue = server.queue()
    missing = refusal(queue.client.get_queue_url, QueueName="there-is-no-such-queue")
    assert missing.codes & {"QueueDoesNotExist", "NonExistentQueue"}


def _expired(server: Target) -> tuple[Queue, str]:
    """Return the expired handle of a message that no one else received."""
    queue = server.queue(vt=1)
    queue.send("a")
    handle = queue.take()
    queue.wait_until_visible()
    return queue, handle


def _stale(server: Target, *, new_timeout: int) -> tuple[Queue, str]:
    """Return the handle of a receive before the latest one."""
    queue = server.queue()
    queue.send("a")
    stale = queue.take(VisibilityTimeout=0)
    queue.take(VisibilityTimeout=new_timeout)
    return queue, stale
