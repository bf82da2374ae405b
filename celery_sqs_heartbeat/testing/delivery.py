"""The messages of a queue that may be received, and their order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice

from celery_sqs_heartbeat.testing.message import SimulatedMessage


def available_of_standard(
    messages: Iterable[SimulatedMessage],
    now: float,
    *,
    duplicate_rate: float,
    generator: random.Random,
) -> Iterator[SimulatedMessage]:
    """Return the visible messages, and at random some that are in flight."""
    for message in messages:
        if message.visible_at <= now or (
            message.receive_count and duplicate_rate and generator.random() < duplicate_rate
        ):
            yield message


def available_of_fifo(
    messages: Iterable[SimulatedMessage], now: float, *, scanned: int
) -> Iterator[SimulatedMessage]:
    """Return the visible messages that no other message of their group blocks.

    They come group by group: a receive takes from one group first (SQS Developer Guide, "FIFO
    delivery logic"). The groups come in the order in which their first messages were sent or became
    visible again. So a released group comes after those that waited meanwhile (LocalStack's
    tests of FIFO groups, with answers recorded from AWS).

    Args:
        scanned: How many of the messages SQS looks through.
    """
    groups: dict[str | None, list[SimulatedMessage]] = {}
    for message in islice(messages, scanned):
        groups.setdefault(message.group_id, []).append(message)
    for group in sorted(groups.values(), key=lambda group: group[0].visible_at):
        for message in group:
            if message.visible_at > now:
                # In flight or delayed: later messages of its group wait, and earlier ones do
                # not (LocalStack's test_fifo_group_visibility_extends_...).
                break
            yield message
