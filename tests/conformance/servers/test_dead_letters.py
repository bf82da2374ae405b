"""Messages that were received too often. Sources as in test_visibility.py."""

from __future__ import annotations

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


def test_a_dead_letters_receive_count_goes_on(server: Target) -> None:
    """L test_dead_letter_queue_message_attributes."""
    queue = server.queue(vt=0, dead_letters_after=1)
    queue.send("a")
    queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    (dead,) = queue.dead_letters.receive()
    assert dead["Attributes"]["ApproximateReceiveCount"] == "2"
