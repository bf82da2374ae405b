"""Numbers are written as people write them."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.common.escaping import counted, seconds


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages")]
)
def test_one_thing_is_written_in_the_singular(count: int, text: str) -> None:
    assert counted(count, "message") == text


def test_some_nouns_have_a_plural_of_their_own() -> None:
    assert [counted(count, "is", "are") for count in (1, 2)] == ["1 is", "2 are"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3.3333, "3.33"), (10, "10"), (99.95, "100"), (1200, "1200"), (14_400.4, "14400")],
)
def test_seconds_are_written_without_an_exponent(value: float, text: str) -> None:
    assert seconds(value) == text
