"""Which messages of a queue may be received, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain

from celery_sqs_heartbeat.testing.message import SimulatedMessage


def available_of_standard(
    messages: Iterable[SimulatedMessage],
    now: float,
    *,
    duplicate_rate: float,
    generator: random.Random,
) -> Iterator[SimulatedMessage]:
    """Return the visible messages, and by chance some that are in flight."""
    for message in messages:
        if message.visible_at <= now or (
            message.receive_count and duplicate_rate and generator.random() < duplicate_rate
        ):
            yield message


def available_of_fifo(
    messages: Iterable[SimulatedMessage], now: float
) -> Iterator[SimulatedMessage]:
    """Return the visible messages that none of their group is in the way of.

    Group by group: a receive fills up from one first (SQS Developer Guide, "FIFO delivery logic").
    """
    groups: dict[str | None, list[SimulatedMessage]] = {}
    for message in messages:
        groups.setdefault(message.group_id, []).append(message)
    blocked: set[str | None] = set()
    for message in chain.from_iterable(groups.values()):
        if message.visible_at > now:
            # In flight or delayed: what comes behind it in its group waits, and what comes before
            # it does not (LocalStack's test_fifo_group_visibility_extends_...).
            blocked.add(message.group_id)
        elif message.group_id not in blocked:
            yield message
