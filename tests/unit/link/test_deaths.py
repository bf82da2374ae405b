"""A keeper with too many calls that hang is replaced, but not before it has lived for a while."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.events import MOST_HANGING
from celery_sqs_heartbeat.link.child import LONG_LIFE, is_unfit


def test_keepers_whose_calls_all_hang_are_replaced_once_a_minute() -> None:
    # As if a name server answered nothing: a hundred queues have calls that hang.
    age = next(age for age in range(1_000) if is_unfit(100 * MOST_HANGING, age))
    assert age == LONG_LIFE == 60.0


def test_a_keeper_with_few_hanging_calls_is_not_replaced() -> None:
    assert not is_unfit(MOST_HANGING - 1, 10 * LONG_LIFE)
