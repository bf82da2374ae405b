"""If keepers die early one after the other, the pauses before the next start grow."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.events import MOST_HANGING
from celery_sqs_heartbeat.link.liveness import LONG_LIFE, RestartBackoff, is_unfit


def test_pauses_grow_while_keepers_die_early() -> None:
    deaths = RestartBackoff()
    assert [deaths.note(1.0) for _ in range(9)] == [0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0]
    assert deaths.count == 9


def test_a_long_life_resets_the_pauses_and_its_end_still_counts() -> None:
    deaths = RestartBackoff()
    assert [deaths.note(age) for age in (1.0, 59.0, 60.0, 1.0)] == [0.0, 0.5, 0.0, 0.5]
    assert deaths.count == 4


def test_a_keeper_that_cannot_be_started_causes_a_pause_but_is_not_a_death() -> None:
    deaths = RestartBackoff()
    assert [deaths.note_refusal() for _ in range(3)] == [0.5, 1.0, 2.0]
    assert deaths.note(1.0) == 2.0
    assert deaths.count == 1


def test_keepers_whose_calls_all_hang_are_replaced_once_a_minute_and_without_a_pause() -> None:
    # As if a name server answered nothing: a hundred queues have calls that hang.
    deaths = RestartBackoff()
    for _ in range(10):
        age = next(age for age in range(1_000) if is_unfit(100 * MOST_HANGING, age))
        assert (age, deaths.note(age)) == (LONG_LIFE, 0.0)


def test_a_keeper_with_few_hanging_calls_is_not_replaced() -> None:
    assert not is_unfit(MOST_HANGING - 1, 10 * LONG_LIFE)
