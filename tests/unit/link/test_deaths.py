"""If keepers die early one after the other, the pauses before the next start grow."""

from __future__ import annotations

from celery_sqs_heartbeat.link.restart_backoff import RestartBackoff


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
