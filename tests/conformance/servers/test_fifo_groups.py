"""Which messages of a FIFO queue's groups are received, and when. Sources as in test_visibility.py.

In the names, a message "behind" another was sent to the same group later.
"""

from __future__ import annotations

import time

from tests.conformance.servers.queue import ROUNDING, STANDSTILL, Queue, bodies
from tests.conformance.servers.target import Target


def test_a_group_waits_while_its_first_message_is_in_flight(server: Target) -> None:
    """L test_fifo_message_group_visibility; G "FIFO delivery logic"."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2")
    handle = queue.take()
    assert not queue.look(WaitTimeSeconds=1)
    queue.delete(handle)
    assert bodies(queue.receive()) == ["2"]


def test_other_groups_continue_meanwhile(server: Target) -> None:
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


def test_a_message_released_before_one_in_flight_comes_again(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_terminate_visibility_timeout."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2", "3")
    first, *_ = queue.receive(10)
    queue.extend(first["ReceiptHandle"], 0)
    assert bodies(queue.receive(10)) == ["1"]


def test_a_message_behind_one_in_flight_waits_although_its_timeout_has_ended(
    server: Target,
) -> None:
    """L test_fifo_group_visibility_extends_with_change_message_visibility."""
    queue = server.fifo()
    queue.send_to_group("g", "1", "2", "3")
    first, _, third = queue.receive(10)
    for over in (third, first):
        queue.extend(over["ReceiptHandle"], 1)
    queue.wait_until_visible()
    assert bodies(queue.receive(10)) == ["1"]


def test_a_message_released_behind_one_in_flight_waits(server: Target) -> None:
    """G "FIFO delivery logic", "Visibility timeout": not available while one before is hidden."""
    queue, (_, second, third) = _received(server)
    queue.extend(third, 0)
    queue.extend(second, 0)
    assert not queue.look(WaitTimeSeconds=2)


def test_a_message_that_was_never_received_waits_behind_one_in_flight(server: Target) -> None:
    """G "FIFO delivery logic", where the message between them was released."""
    queue, (_, second, third) = _received(server)
    queue.send_to_group("g", "4")
    queue.extend(third, 0)
    queue.extend(second, 0)
    assert not queue.look(WaitTimeSeconds=2)


def test_a_group_that_is_released_from_its_end_comes_in_its_order(server: Target) -> None:
    """G "FIFO delivery logic": a batch of one group retains its order."""
    queue, handles = _received(server)
    for handle in reversed(handles):
        queue.extend(handle, 0)
    assert bodies(queue.receive(10)) == ["1", "2", "3"]


def test_a_batch_that_releases_a_group_from_its_end_lets_it_come_in_its_order(
    server: Target,
) -> None:
    """As the one before; A ChangeMessageVisibilityBatch: each entry is done separately."""
    queue, (first, second, third) = _received(server)
    answer = queue.extend_batch(("c", third, 0), ("b", second, 0), ("a", first, 0))
    assert sorted(entry["Id"] for entry in answer["Successful"]) == ["a", "b", "c"]
    assert bodies(queue.receive(10)) == ["1", "2", "3"]


def test_a_delayed_first_message_holds_its_released_group_back(server: Target) -> None:
    """G "Visibility timeout": while it is hidden. Then all are received, in order."""
    queue, (first, second, third) = _received(server)
    queue.send_to_group("g", "4")
    since = time.monotonic()
    queue.extend(first, STANDSTILL)
    queue.extend(third, 0)
    queue.extend(second, 0)
    came = queue.receive(10)
    assert bodies(came) == ["1", "2", "3", "4"]
    assert time.monotonic() - since >= STANDSTILL - ROUNDING


def test_a_group_waits_until_all_that_was_received_of_it_is_deleted(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_partial_delete."""
    queue, (first, second, third) = _received(server)
    queue.send_to_group("g", "4")
    for handle in (first, second):
        queue.delete(handle)
        assert not queue.look(WaitTimeSeconds=1)
    queue.delete(third)
    assert bodies(queue.receive(10)) == ["4"]


def test_a_message_released_behind_one_in_flight_waits_after_a_delete_before_it(
    server: Target,
) -> None:
    """G "FIFO delivery logic": the first is deleted, the second hidden, the third released."""
    queue, (first, second, third) = _received(server)
    queue.extend(third, 0)
    queue.delete(first)
    assert not queue.look(WaitTimeSeconds=2)
    queue.delete(second)
    assert bodies(queue.receive(10)) == ["3"]


def test_a_lease_of_one_group_holds_back_no_other(server: Target) -> None:
    """G "FIFO delivery logic": it applies per group."""
    queue = server.fifo()
    queue.send_to_group("g", "g1")
    queue.take()
    queue.send_to_group("h", "h1")
    queue.take(VisibilityTimeout=1)
    assert bodies(queue.receive(10)) == ["h1"]


def test_receives_take_one_group_after_the_other(server: Target) -> None:
    """G "FIFO delivery logic": as many of the same group as possible, then none of it."""
    queue = server.fifo()
    for number in range(11):
        for group in "ghi":
            queue.send_to_group(group, f"{group}{number}")
    came = [bodies(queue.look()) for _ in range(4)]
    assert sorted(came) == [[], *([f"{group}{number}" for number in range(10)] for group in "ghi")]


def test_a_released_group_comes_after_those_that_wait(server: Target) -> None:
    """L test_fifo_message_group_visibility_after_terminate_visibility_timeout."""
    queue = server.fifo()
    queue.send_to_group("g", "g1", "g2")
    queue.send_to_group("h", "h1")
    first, _ = queue.receive(2)
    queue.extend(first["ReceiptHandle"], 0)
    assert bodies(queue.receive(10)) == ["h1", "g1"]


def _received(server: Target) -> tuple[Queue, list[str]]:
    """Return a queue with three messages of one group in flight, and their handles."""
    queue = server.fifo(vt=600)
    queue.send_to_group("g", "1", "2", "3")
    return queue, [message["ReceiptHandle"] for message in queue.receive(10)]
