"""Messages that were received too often. Sources as in test_visibility.py."""

from __future__ import annotations

from tests.conformance.servers.queue import bodies
from tests.conformance.servers.target import Target


def test_a_message_goes_to_the_dead_letters_after_max_receive_count(server: Target) -> None:
    """L test_dead_letter_queue_max_receive_count; G "Dead-letter queues"."""
    queue = server.queue(vt=0, dead_letters_after=2)
    queue.send("a")
    (message,) = queue.receive()
    assert queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    (dead,) = queue.dead_letters.receive()
    assert dead["MessageId"] == message["MessageId"]


def test_a_dead_letters_receive_count_continues(server: Target) -> None:
    """L test_dead_letter_queue_message_attributes."""
    queue = server.queue(vt=0, dead_letters_after=1)
    queue.send("a")
    queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    (dead,) = queue.dead_letters.receive()
    assert dead["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_dead_letter_frees_its_group(server: Target) -> None:
    """G "Avoid large message backlogs with the same message group ID"."""
    queue = server.fifo(dead_letters_after=1)
    queue.send_to_group("g", "1", "2")
    queue.extend(queue.take(), 0)
    assert bodies(queue.receive()) == ["2"]
    assert bodies(queue.dead_letters.receive()) == ["1"]


def test_a_message_received_with_a_failing_one_becomes_a_dead_letter_too(server: Target) -> None:
    """A ReceiveMessage, ApproximateReceiveCount: each receive counts, handled or not."""
    queue = server.fifo(dead_letters_after=2)
    queue.send_to_group("g", "bad", "good", "later")
    for _ in range(2):
        received = queue.receive(2)
        assert bodies(received) == ["bad", "good"]
        for message in reversed(received):
            queue.extend(message["ReceiptHandle"], 0)
    assert bodies(queue.receive(10)) == ["later"]
    assert bodies(queue.dead_letters.receive(10)) == ["bad", "good"]


def test_a_dead_letter_of_a_fifo_queue_keeps_its_group_and_stands_last(server: Target) -> None:
    """G "FIFO delivery logic"; L test_dead_letter_queue_with_fifo_and_content_based_..."""
    queue = server.fifo(dead_letters_after=1)
    queue.send_to_group("g", "dead")
    queue.dead_letters.send_to_group("g", "earlier")
    (message,) = queue.receive(VisibilityTimeout=0)
    assert not queue.look(WaitTimeSeconds=1)
    earlier, dead = queue.dead_letters.receive(10)
    assert bodies([earlier, dead]) == ["earlier", "dead"]
    assert dead["MessageId"] == message["MessageId"]
    assert dead["Attributes"]["MessageGroupId"] == "g"


def test_a_dead_letter_of_a_fifo_queue_has_the_highest_sequence_number(server: Target) -> None:
    """A SendMessage, SequenceNumber: it rises within a group. LocalStack gives a new one for that.

    What AWS does is unknown: the old number would be lower.
    """
    queue = server.fifo(dead_letters_after=1)
    queue.send_to_group("g", "dead")
    queue.dead_letters.send_to_group("g", *"abcdefgh")
    queue.take(VisibilityTimeout=0)
    assert not queue.look(WaitTimeSeconds=1)
    received = queue.dead_letters.receive(10)
    assert bodies(received) == [*"abcdefgh", "dead"]
    numbers = [int(message["Attributes"]["SequenceNumber"]) for message in received]
    assert numbers == sorted(set(numbers))


def test_a_dead_letter_of_a_fifo_queue_has_its_id_for_deduplication(server: Target) -> None:
    """G "Learn how to configure a dead-letter queue redrive"."""
    queue = server.fifo(dead_letters_after=1)
    queue.send_to_group("g", "a")
    queue.take(VisibilityTimeout=0)
    assert not queue.look(WaitTimeSeconds=1)
    (dead,) = queue.dead_letters.receive()
    assert dead["Attributes"]["MessageDeduplicationId"] == dead["MessageId"]
