"""The order in which a simulated FIFO queue delivers, and how it numbers."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.testing.delivery import available_of_fifo
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.sequence import SequenceNumbers

NOW = 100.0
#: Names in the order in which they were sent, and when each is visible (again). The letter is the
#: group.
TABLE = [
    ("a1:1 b1:2 a2:3", "a1 a2 b1"),
    ("a1:200 a2:2 b1:3", "b1"),
    ("a1:1 a2:200 a3:3 b1:4", "a1 b1"),
    # Released or expired at 50: behind the groups that were waiting.
    ("a1:50 a2:50 b1:3", "b1 a1 a2"),
    ("a1:50 b1:60 a2:4 c1:5", "c1 a1 a2 b1"),
    # Its first two messages were deleted: the third one decides its place.
    ("b1:2 a3:6 c1:8", "b1 a3 c1"),
    ("a1:100", "a1"),
]


def _messages(text: str) -> list[SimulatedMessage]:
    pairs = (each.split(":") for each in text.split())
    return [
        SimulatedMessage(
            message_id=name, body=name, group_id=name[0], sent_at=0, visible_at=float(visible_at)
        )
        for name, visible_at in pairs
    ]


@pytest.mark.parametrize(("there", "come"), TABLE)
def test_groups_come_by_when_their_first_message_became_visible(there: str, come: str) -> None:
    available = available_of_fifo(_messages(there), NOW, scanned=10)
    assert [message.body for message in available] == come.split()


def test_groups_beyond_the_messages_that_sqs_looks_at_wait() -> None:
    available = available_of_fifo(_messages("a1:200 a2:2 b1:3 c1:4"), NOW, scanned=3)
    assert [message.body for message in available] == ["b1"]


def test_sequence_numbers_rise_and_do_not_fit_into_64_bits() -> None:
    numbers = SequenceNumbers()
    given = [numbers.next(now) for now in (0, 0, 0, 0.001, 5, 5, 4, 86_400)]
    assert given == sorted(set(given))
    assert min(given) >= 2**64
    assert {len(str(number)) for number in given} == {20}


def test_sequence_numbers_of_two_queues_compare_by_time() -> None:
    one, other = SequenceNumbers(), SequenceNumbers()
    assert one.next(1) < other.next(2) < one.next(3)
