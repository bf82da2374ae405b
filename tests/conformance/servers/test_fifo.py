"""FIFO queues: handles, deduplication, groups; and dead letters. Sources as in test_standard.py.

In the names, a message "behind" another was sent to the same group later.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conformance.servers.queue import ROUNDING, STANDSTILL, Queue, bodies, refusal
from tests.conformance.servers.target import Target, differs

#: The codes for an expired handle. Which of them SQS returns is not known for every call.
OVER = ("InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid")


def received(server: Target, *names: str, vt: int = 600) -> tuple[Queue, list[str]]:
    """Return a queue with messages of one group in flight, and their handles."""
    queue = server.fifo(vt=vt)
    queue.send_to_group("g", *names)
    return queue, [message["ReceiptHandle"] for message in queue.receive(10)]


def expired(server: Target) -> tuple[Queue, str]:
    queue, (handle,) = received(server, "a", vt=1)
    queue.wait_until_visible()
    return queue, handle


def stale(server: Target) -> tuple[Queue, str]:
    queue = server.fifo()
    queue.send_to_group("g", "a")
    handle = queue.take(VisibilityTimeout=0)
    queue.take()
    return queue, handle


def is_over(refused: str) -> bool:
    return any(code in refused for code in OVER)


def numbers(messages: Sequence[dict[str, Any]]) -> list[int]:
    return [int(message["Attributes"]["SequenceNumber"]) for message in messages]


@differs(moto="deletes the message", ministack="deletes the message")
def test_a_delete_by_an_expired_handle_is_refused(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout."""
    queue, handle = expired(server)
    refused = refusal(queue.delete, handle)
    assert "InvalidParameterValue" in refused
    assert "The receipt handle has expired" in refused


def test_a_delete_after_an_extension_deletes(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout_extended."""
    queue, (handle,) = received(server, "a", vt=STANDSTILL)
    queue.extend(handle, 600)
    time.sleep(STANDSTILL + 0.2)
    queue.delete(handle)
    assert not queue.look()


@differs(moto="hides the message", ministack="hides the message", localstack="answers success")
def test_a_change_by_an_expired_handle_is_refused(server: Target) -> None:
    """As reported in github.com/aws/aws-sdk-js-v3/issues/2983 and .../piped/issues/12."""
    queue, handle = expired(server)
    assert is_over(refusal(queue.extend, handle, 5))


@differs(moto="hides the message", ministack="hides the message")
def test_a_change_by_an_expired_handle_changes_nothing(server: Target) -> None:
    """As the one before: refused or not, the message can be received."""
    queue, handle = expired(server)
    with contextlib.suppress(ClientError):
        queue.extend(handle, 600)
    assert bodies(queue.receive(VisibilityTimeout=600)) == "a"


@differs(
    moto="moves the new owner's lease, or deletes the message",
    localstack="moves the new owner's lease, or deletes the message while its new owner has it",
)
def test_a_stale_handle_is_refused(server: Target) -> None:
    """L test_fifo_delete_after_visibility_timeout: the timeout of that receive has ended, too."""
    queue, handle = stale(server)
    assert is_over(refusal(queue.extend, handle, 5))
    assert is_over(refusal(queue.delete, handle))


@differs(moto="does it", ministack="does it", localstack="extends it, and answers success")
def test_a_batch_with_an_expired_handle_fails_that_entry_alone(server: Target) -> None:
    """As reported in github.com/smaskalik/sqsmover/issues/54."""
    queue = server.fifo()
    queue.send_to_group("g", "a")
    queue.send_to_group("h", "b")
    over, good = (message["ReceiptHandle"] for message in queue.receive(10))
    queue.extend(over, 1)
    queue.wait_until_visible()
    assert queue.extend_batch(("good", good), ("bad", over), timeout=600) == "good | bad"
    assert queue.delete_batch(("good", good), ("bad", over)) == "good | bad"


@differs(moto="sends it again once the first is deleted")
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"MessageGroupId": "g"}, "ContentBasedDeduplication enabled"),
        ({"MessageDeduplicationId": "1"}, "MissingParameter"),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "1", "DelaySeconds": 2},
            "InvalidParameterValue",
        ),
    ],
)
def test_a_send_is_refused(server: Target, options: dict[str, Any], says: str) -> None:
    """L test_posting_to_fifo_requires_deduplicationid_group_id, ..._with_delay_seconds_fails."""
    assert says in refusal(server.fifo().send, "a", **options)


@differs(moto="draws them by chance", ministack="counts from 1, with leading zeros")
def test_sequence_numbers_rise_and_have_20_digits(server: Target) -> None:
    """A SendMessage, SequenceNumber; L test_fifo_sequence_number_increases.

    That they rise from group to group, and their length, is as numbers of AWS in public records
    show (`testing/queue.py`); AWS does not promise it.
    """
    queue = server.fifo()
    for number in range(12):
        queue.send_to_group("ghi"[number % 3], f"{number:02}")
    first = queue.receive(10)
    queue.delete_batch(*((str(n), each["ReceiptHandle"]) for n, each in enumerate(first)))
    came = sorted(first + queue.receive(10), key=lambda message: str(message["Body"]))
    assert len(came) == 12
    assert numbers(came) == sorted(set(numbers(came)))
    assert {len(str(number)) for number in numbers(came)} == {20}


def test_a_message_keeps_its_sequence_number(server: Target) -> None:
    """L test_fifo_message_attributes."""
    queue = server.fifo(vt=0)
    queue.send_to_group("g", "a")
    assert numbers(queue.receive()) == numbers(queue.receive())


def test_a_group_waits_while_its_first_message_is_in_flight(server: Target) -> None:
    """L test_fifo_message_group_visibility; G "FIFO delivery logic"."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2")
    handle = queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    queue.delete(handle)
    assert bodies(queue.receive()) == "2"


def test_other_groups_continue_meanwhile(server: Target) -> None:
    """L test_fifo_receive_message_visibility_timeout_shared_in_group."""
    queue = server.fifo()
    queue.send_to_group("g", "g1", "g2")
    queue.send_to_group("h", "h1")
    queue.take()
    assert bodies(queue.receive(10)) == "h1"


@differs(moto="brings messages as they were sent", ministack="brings messages as they were sent")
def test_a_receive_fills_up_from_one_group_first(server: Target) -> None:
    """L test_fifo_receive_message_group_id_ordering; G "FIFO delivery logic"."""
    queue = server.fifo()
    queue.send_to_group("g", "g1")
    queue.send_to_group("h", "h1")
    queue.send_to_group("g", "g2")
    assert bodies(queue.receive(10)) == "g1 g2 h1"


@differs(moto="brings the last of the group alone")
def test_the_order_stays_after_the_timeout(server: Target) -> None:
    """L test_fifo_messages_in_order_after_timeout."""
    queue, _ = received(server, "1", "2", "3", vt=1)
    queue.wait_until_visible(3)
    assert bodies(queue.receive(10)) == "1 2 3"


@differs(moto="waits for all of the group", ministack="waits for all of the group")
def test_a_message_released_before_one_in_flight_comes_again(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_terminate_visibility_timeout."""
    queue, (first, *_) = received(server, "1", "2", "3")
    queue.extend(first, 0)
    assert bodies(queue.receive(10)) == "1"


@differs(
    moto="waits for all of the group, before and behind",
    ministack="waits for all of the group, before and behind",
)
def test_a_message_behind_one_in_flight_waits_although_its_timeout_has_ended(
    server: Target,
) -> None:
    """L test_fifo_group_visibility_extends_with_change_message_visibility."""
    queue, (first, _, third) = received(server, "1", "2", "3")
    for handle in (third, first):
        queue.extend(handle, 1)
    queue.wait_until_visible()
    assert bodies(queue.receive(10)) == "1"


@differs(localstack="brings it before the one in flight")
def test_a_message_released_behind_one_in_flight_waits(server: Target) -> None:
    """G "FIFO delivery logic", "Visibility timeout": not available while one before is hidden."""
    queue, (_, second, third) = received(server, "1", "2", "3")
    queue.send_to_group("g", "4")
    queue.extend(third, 0)
    queue.extend(second, 0)
    assert not queue.look(WaitTimeSeconds=2)


def test_a_group_that_is_released_from_its_end_comes_in_its_order(server: Target) -> None:
    """G "FIFO delivery logic": a batch of one group retains its order; alone and in a batch."""
    queue, handles = received(server, "1", "2", "3")
    for handle in reversed(handles):
        queue.extend(handle, 0)
    again = queue.receive(10)
    assert bodies(again) == "1 2 3"
    entries = [(each["Body"], each["ReceiptHandle"]) for each in reversed(again)]
    assert queue.extend_batch(*entries, timeout=0) == "3 2 1 | "
    assert bodies(queue.receive(10)) == "1 2 3"


@differs(localstack="brings the others at once")
def test_a_delayed_first_message_holds_its_released_group_back(server: Target) -> None:
    """G "Visibility timeout": while it is hidden. Then all are received, in order."""
    queue, (first, second, third) = received(server, "1", "2", "3")
    queue.send_to_group("g", "4")
    since = time.monotonic()
    queue.extend(first, STANDSTILL)
    queue.extend(third, 0)
    queue.extend(second, 0)
    assert bodies(queue.receive(10)) == "1 2 3 4"
    assert time.monotonic() - since >= STANDSTILL - ROUNDING


def test_a_group_waits_until_all_that_was_received_of_it_is_deleted(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_partial_delete."""
    queue, (first, second, third) = received(server, "1", "2", "3")
    queue.send_to_group("g", "4")
    for handle in (first, second):
        queue.delete(handle)
        assert not queue.look(WaitTimeSeconds=1)
    queue.delete(third)
    assert bodies(queue.receive(10)) == "4"


@differs(localstack="brings the third before the second")
def test_a_message_released_behind_one_in_flight_waits_after_a_delete_before_it(
    server: Target,
) -> None:
    """G "FIFO delivery logic": the first is deleted, the second hidden, the third released."""
    queue, (first, second, third) = received(server, "1", "2", "3")
    queue.extend(third, 0)
    queue.delete(first)
    assert not queue.look(WaitTimeSeconds=2)
    queue.delete(second)
    assert bodies(queue.receive(10)) == "3"


@differs(localstack="keeps an expired message hidden while one that was received before it is not")
def test_a_lease_of_one_group_holds_back_no_other(server: Target) -> None:
    """G "FIFO delivery logic": it applies per group."""
    queue = server.fifo()
    queue.send_to_group("g", "g1")
    queue.take()
    queue.send_to_group("h", "h1")
    queue.take(VisibilityTimeout=1)
    assert bodies(queue.receive(10)) == "h1"


@differs(moto="brings messages as they were sent", ministack="brings messages as they were sent")
def test_receives_take_one_group_after_the_other(server: Target) -> None:
    """G "FIFO delivery logic": as many of the same group as possible, then none of it."""
    queue = server.fifo()
    for number in range(11):
        for group in "ghi":
            queue.send_to_group(group, f"{group}{number}")
    came = [bodies(queue.look()) for _ in range(4)]
    wanted = [" ".join(f"{group}{number}" for number in range(10)) for group in "ghi"]
    assert sorted(came) == ["", *wanted]


@differs(moto="waits for all of the group", ministack="waits for all of the group")
def test_a_released_group_comes_after_those_that_wait(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_terminate_visibility_timeout."""
    queue = server.fifo()
    queue.send_to_group("g", "g1", "g2")
    queue.send_to_group("h", "h1")
    first, _ = queue.receive(2)
    queue.extend(first["ReceiptHandle"], 0)
    assert bodies(queue.receive(10)) == "h1 g1"


def test_a_message_becomes_a_dead_letter_after_max_receive_count(server: Target) -> None:
    """L test_dead_letter_queue_max_receive_count; G "Dead-letter queues".

    Its receive count continues: L test_dead_letter_queue_message_attributes.
    """
    queue = server.queue(vt=0, dead_letters_after=2)
    queue.send("a")
    (message,) = queue.receive()
    assert queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    (dead,) = queue.dead_letters.receive()
    assert dead["MessageId"] == message["MessageId"]
    assert dead["Attributes"]["ApproximateReceiveCount"] == "3"


def test_a_dead_letter_frees_its_group(server: Target) -> None:
    """G "Avoid large message backlogs with the same message group ID"."""
    queue = server.fifo(dead_letters_after=1)
    queue.send_to_group("g", "1", "2")
    queue.extend(queue.take(), 0)
    assert bodies(queue.receive()) == "2"
    assert bodies(queue.dead_letters.receive()) == "1"


def test_a_message_received_with_a_failing_one_becomes_a_dead_letter_too(server: Target) -> None:
    """A ReceiveMessage, ApproximateReceiveCount: each receive counts, handled or not."""
    queue = server.fifo(dead_letters_after=2)
    queue.send_to_group("g", "bad", "good", "later")
    for _ in range(2):
        came = queue.receive(2)
        assert bodies(came) == "bad good"
        for message in reversed(came):
            queue.extend(message["ReceiptHandle"], 0)
    assert bodies(queue.receive(10)) == "later"
    assert bodies(queue.dead_letters.receive(10)) == "bad good"


def dead_letters(server: Target) -> list[dict[str, Any]]:
    """Return messages of a FIFO queue's dead-letter queue: the last comes from the FIFO queue."""
    queue = server.fifo(dead_letters_after=1)
    queue.send_to_group("g", "dead")
    queue.dead_letters.send_to_group("g", *"abcdefgh")
    queue.take(VisibilityTimeout=0)
    assert not queue.look(WaitTimeSeconds=1)
    return list(queue.dead_letters.receive(10))


def test_a_dead_letter_of_a_fifo_queue_keeps_its_group_and_stands_last(server: Target) -> None:
    """G "FIFO delivery logic"; L test_dead_letter_queue_with_fifo_and_content_based_..."""
    came = dead_letters(server)
    assert bodies(came) == "a b c d e f g h dead"
    assert came[-1]["Attributes"]["MessageGroupId"] == "g"


@differs(moto="draws them by chance", ministack="keeps the one of the queue that it comes from")
def test_a_dead_letter_of_a_fifo_queue_has_the_highest_sequence_number(server: Target) -> None:
    """A SendMessage, SequenceNumber: it rises within a group. LocalStack gives a new one for that.

    What AWS does is unknown: the old number would be lower.
    """
    came = dead_letters(server)
    assert numbers(came) == sorted(set(numbers(came)))


@differs(
    moto="keeps the one that it was sent with",
    ministack="keeps the one that it was sent with",
    localstack="keeps the one that it was sent with",
)
def test_a_dead_letter_of_a_fifo_queue_has_its_id_for_deduplication(server: Target) -> None:
    """G "Learn how to configure a dead-letter queue redrive"."""
    dead = dead_letters(server)[-1]
    assert dead["Attributes"]["MessageDeduplicationId"] == dead["MessageId"]
