"""What the death of a worker or of its keeper explains, and what it does not."""

from __future__ import annotations

import math

import pytest

from tests.soak.cut import note_unread_answers
from tests.soak.model import CHANGE
from tests.soak.story import UNEXPLAINED, Story
from tests.soak.table import (
    KEEPER_DOWN,
    KILLED,
    LEFT_IN_POLL,
    LEFT_TO_TIMEOUT,
    NOT_HANDED_OVER,
    RELEASE_CUT,
)
from tests.soak.test_causes import expired, released


def short_lived() -> Story:
    """Worker a receives the message for 4 s and starts it. b receives it then, and does it too."""
    story = Story().receive("a", 1, 1.0, seconds=4).run("a", 1, 1.5, 9.0)
    return story.receive("b", 2, 5.2).run("b", 2, 5.5, 6.0).delete("b", 2, 6.1)


def unfinished() -> Story:
    """Worker a starts the message. b receives it after the timeout and does it."""
    return Story().receive("a", 1, 1.0).run("a", 1, 1.5).done_again()


def cut(release: float | None = 2.65) -> Story:
    """A task of worker a fails. Its release is under way when the keeper dies, and is not done."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.6, "fail")
    if release is not None:
        story.hide("a", 1, release, 0, fails=True, fault="reset")
    return story.done_again()


def broken_late() -> Story:
    """Worker a holds the message until it expires, and loses its connection only then."""
    return Story().receive("a", 1, 1.0).harm("break", "a", 8.0).done_again()


def test_the_keeper_of_a_killed_worker_releases_its_messages() -> None:
    verdict = released(4.5, math.inf).harm("kill", "a", 3.0).explained()
    assert verdict.redeliveries == ["its worker was killed"]
    assert verdict.rows == [KILLED]


def test_the_keeper_of_a_killed_worker_releases_waiting_messages_too() -> None:
    story = Story().receive("a", 1, 1.0).harm("kill", "a", 2.0).hide("a", 1, 2.5, 0)
    verdict = story.receive("b", 2, 2.7).run("b", 2, 2.8, 3.0).delete("b", 2, 3.1).explained()
    assert verdict.rows == [KILLED]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(released(4.5, math.inf).harm("kill", "a", 5.0), id="before the worker died"),
        pytest.param(released(4.5, math.inf).harm("kill", "b", 3.0), id="another worker died"),
        pytest.param(released(4.5, 4.9).harm("kill", "a", 3.0), id="while a process still ran it"),
        pytest.param(released(4.5, 1.6).harm("kill", "a", 3.0), id="though it had succeeded"),
    ],
)
def test_a_release_for_a_dead_worker_has_its_limits(story: Story) -> None:
    assert UNEXPLAINED[0] in story.verdict().faults


def test_a_lease_that_outlives_its_worker_by_far_may_not_expire() -> None:
    assert unfinished().harm("kill", "a", 4.0).verdict().faults == UNEXPLAINED


def test_a_lease_may_expire_if_the_keeper_had_little_time() -> None:
    assert unfinished().harm("kill", "a", 5.5).explained().redeliveries == ["its worker was killed"]


@pytest.mark.parametrize(
    "story",
    [
        # The keeper died next.
        unfinished().harm("kill", "a", 4.0).harm("keeper-kill", "a", 4.5),
        # It had died before.
        unfinished().harm("keeper-kill", "a", 3.9).harm("kill", "a", 4.0),
    ],
)
def test_a_lease_may_expire_if_the_keeper_died_too(story: Story) -> None:
    assert story.explained().redeliveries == ["its worker and its keeper were killed"]


@pytest.mark.parametrize(
    "story",
    [
        # Long before.
        unfinished().harm("keeper-kill", "a", 1.5).harm("kill", "a", 4.0),
        # Another's keeper.
        unfinished().harm("keeper-kill", "b", 3.9).harm("kill", "a", 4.0),
    ],
)
def test_no_other_death_of_a_keeper_explains_an_expiry(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_keeper_that_is_stopped_past_the_expiry_may_not_release_a_message() -> None:
    verdict = unfinished().hang("a", 3.9, 9.0, died=False).harm("kill", "a", 4.0).explained()
    assert verdict.rows == [LEFT_TO_TIMEOUT]


def test_a_worker_that_is_stopped_without_its_keeper_loses_no_lease() -> None:
    assert expired().stop_without_keeper("a", 4.0, 9.0).verdict().faults == UNEXPLAINED


def test_a_keeper_reads_a_message_although_its_worker_is_stopped() -> None:
    story = Story().stop_without_keeper("a", 0.9, 8.0).receive("a", 1, 1.0).run("a", 1, 8.1, 9.0)
    story.done_again()
    assert story.verdict().faults == UNEXPLAINED


def not_handed_over(released: float = 2.4, *, pool: str = "solo", arrived: bool = False) -> Story:
    """The keeper of worker a receives the message at 1.0. Worker a releases it. b does it."""
    story = Story(pool=pool).receive("a", 1, 1.0).hide("a", 1, released, 0)
    if arrived:
        story.arrive("a", 1, 1.1)
    back = released + 0.2
    return story.receive("b", 2, back).run("b", 2, back, back + 1).delete("b", 2, back + 1.1)


@pytest.mark.parametrize(
    "story",
    [
        # It was killed.
        not_handed_over().harm("keeper-kill", "a", 1.5),
        # It hung, and was killed.
        not_handed_over(4.0).hang("a", 1.5, 2.8),
        # The next one was killed, too.
        not_handed_over(3.5).harm("keeper-kill", "a", 1.5).harm("keeper-kill", "a", 2.0),
        # Its worker could not start another at once.
        not_handed_over(5.0).harm("keeper-kill", "a", 1.5).stop_without_keeper("a", 1.6, 4.5),
        # The release was repeated.
        not_handed_over(6.0).harm("keeper-kill", "a", 1.5).hide("a", 1, 2.4, 0, fails=True),
    ],
)
def test_the_next_keeper_releases_what_the_dead_one_had_not_handed_over(story: Story) -> None:
    verdict = story.explained()
    assert verdict.redeliveries == ["its keeper died before it was handed over"]
    assert verdict.rows == [NOT_HANDED_OVER]


@pytest.mark.parametrize(
    "story",
    [
        # No keeper died.
        not_handed_over(),
        # Another's keeper.
        not_handed_over().harm("keeper-kill", "b", 1.5),
        # Before the receive.
        not_handed_over().harm("keeper-kill", "a", 0.9),
        # After the release.
        not_handed_over().harm("keeper-kill", "a", 2.5),
        # Long after its start.
        not_handed_over(5.0).harm("keeper-kill", "a", 1.5),
        # It continued.
        not_handed_over().hang("a", 1.5, 1.9, died=False),
        # It was handed over.
        not_handed_over(arrived=True).harm("keeper-kill", "a", 1.5),
        # Its task was started.
        not_handed_over().run("a", 1, 1.2, 9.0).harm("keeper-kill", "a", 1.5),
    ],
)
def test_no_other_message_is_released_by_the_next_keeper(story: Story) -> None:
    assert UNEXPLAINED[0] in story.verdict().faults


def in_a_poll(answered: float = 2.0) -> Story:
    """Worker a sends a receive at 1.0. SQS answers it with the message. b does it."""
    story = Story().receive("a", 1, 1.0, answered=answered)
    story.records.calls[-1].done = answered
    back = answered + 6.2
    return story.receive("b", 2, back).run("b", 2, back, back + 1).delete("b", 2, back + 1.1)


@pytest.mark.parametrize(
    "story",
    [
        # It was killed.
        in_a_poll().harm("keeper-kill", "a", 1.5),
        # Before it read the answer.
        in_a_poll().harm("keeper-kill", "a", 2.05),
        # It hung, and was killed.
        in_a_poll().hang("a", 1.5, 2.8),
        # It was killed as it continued.
        in_a_poll().hang("a", 1.5, 2.8, died=False).harm("keeper-kill", "a", 2.8),
    ],
)
def test_what_a_poll_of_a_dead_keeper_gets_stays_hidden(story: Story) -> None:
    verdict = story.explained()
    assert verdict.redeliveries == ["its keeper died with a poll open"]
    assert verdict.rows == [LEFT_IN_POLL]


@pytest.mark.parametrize(
    "story",
    [
        # No keeper died.
        in_a_poll(),
        # Another's keeper.
        in_a_poll().harm("keeper-kill", "b", 1.5),
        # Before the poll.
        in_a_poll().harm("keeper-kill", "a", 0.5),
        # After it read the answer.
        in_a_poll().harm("keeper-kill", "a", 2.4),
        # It continued.
        in_a_poll().hang("a", 1.5, 2.4, died=False),
        # The message was read.
        in_a_poll().hide("a", 1, 2.1).harm("keeper-kill", "a", 2.05),
    ],
)
def test_no_other_message_of_a_poll_stays_hidden(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_poll_of_a_dead_worker_may_receive_what_its_keeper_has_released() -> None:
    story = Story().receive("a", 1, 0.5).harm("kill", "a", 0.9).hide("a", 1, 1.0, 0)
    story.receive("a", 2, 1.1).hide("a", 2, 1.2, 0)
    verdict = story.receive("b", 3, 1.4).run("b", 3, 1.5, 2.0).delete("b", 3, 2.1).explained()
    assert verdict.redeliveries == [
        "its worker was killed",
        "it arrived after its worker was killed",
    ]


def test_what_arrives_after_the_death_of_a_worker_must_be_released() -> None:
    story = Story().harm("kill", "a", 0.9).receive("a", 1, 1.1)
    story.receive("b", 2, 7.4).run("b", 2, 7.5, 8.0).delete("b", 2, 8.1)
    assert story.verdict().faults == UNEXPLAINED


def test_the_death_of_a_keeper_costs_a_short_lease() -> None:
    verdict = short_lived().harm("keeper-kill", "a", 3.5).explained()
    assert verdict.redeliveries == ["its keeper was killed"]
    assert verdict.rows == [KEEPER_DOWN]


def test_the_death_of_a_keeper_costs_no_longer_lease() -> None:
    assert expired().harm("keeper-kill", "a", 5.5).verdict().faults == UNEXPLAINED


def test_the_death_of_a_keeper_costs_no_lease_that_had_time_before_or_after_it() -> None:
    assert short_lived().harm("keeper-kill", "a", 2.5).verdict().faults == UNEXPLAINED
    assert short_lived().harm("keeper-kill", "b", 3.5).verdict().faults == UNEXPLAINED


@pytest.mark.parametrize(("called", "is_explained"), [(3.6, True), (3.9, False)])
def test_once_a_keeper_has_made_a_call_there_is_one(called: float, *, is_explained: bool) -> None:
    # A call of the dead keeper may arrive a moment after its death.
    story = short_lived().harm("keeper-kill", "a", 3.5).receive_other("a", called)
    assert bool(story.verdict().faults) is not is_explained


def test_many_deaths_in_a_row_may_cost_a_longer_lease() -> None:
    story = expired()
    for at in (2.0, 3.1, 4.7):
        story.harm("keeper-kill", "a", at)
    assert story.verdict().faults == []
    assert story.verdict().rows == [KEEPER_DOWN]


def test_a_keeper_that_hangs_may_cost_a_lease() -> None:
    assert expired().hang("a", 5.0, 6.2).explained().redeliveries == ["its keeper was stopped"]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(expired().hang("a", 2.5, 9.0, died=False), id="it should have been replaced"),
        pytest.param(expired().hang("a", 5.5, 5.9, died=False), id="too short"),
        pytest.param(expired().hang("b", 5.0, 6.2), id="another worker's"),
    ],
)
def test_a_keeper_that_continues_in_time_or_needs_replacement_costs_no_lease(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_keeper_that_hangs_as_it_starts_may_take_longer() -> None:
    assert expired().hang("a", 4.0, 9.0, died=False).verdict().faults == UNEXPLAINED
    assert expired().hang("a", 4.0, 9.0, died=False, young=True).verdict().faults == []


@pytest.mark.parametrize("release", [2.65, None])
def test_a_release_that_was_under_way_when_its_keeper_died_is_not_repeated(
    release: float | None,
) -> None:
    story = cut(release).harm("keeper-kill", "a", 2.655).logs_unrepeated("a")
    assert story.explained().rows == [RELEASE_CUT]


def test_a_release_that_a_hanging_keeper_left_may_be_under_way_when_the_next_keeper_dies() -> None:
    story = cut(None).hang("a", 1.05, 2.25).harm("keeper-kill", "a", 3.3).logs_unrepeated("a")
    assert story.explained().rows == [RELEASE_CUT]


@pytest.mark.parametrize(
    "story",
    [
        # No line of the log reports it.
        cut(None).harm("keeper-kill", "a", 2.655),
        # No keeper died.
        cut(None).logs_unrepeated("a"),
        # Another's keeper.
        cut(None).harm("keeper-kill", "b", 2.655).logs_unrepeated("a"),
        # It had not failed yet.
        cut(None).harm("keeper-kill", "a", 1.2).logs_unrepeated("a"),
        # Long after it failed.
        cut(None).harm("keeper-kill", "a", 4.0).logs_unrepeated("a"),
        # When it was visible.
        broken_late().harm("keeper-kill", "a", 8.0).logs_unrepeated("a"),
    ],
)
def test_no_other_release_may_be_left_undone(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_release_that_failed_before_its_keeper_died_has_another_cause() -> None:
    story = cut(2.65).harm("keeper-kill", "a", 4.0).logs_unrepeated("a")
    assert story.verdict().rows == [LEFT_TO_TIMEOUT]


@pytest.mark.parametrize(("died_at", "was_read"), [(4.9, True), (5.05, False), (5.2, True)])
def test_an_answer_that_a_dead_keeper_did_not_read_does_not_count(
    died_at: float, was_read: bool
) -> None:
    story = expired().hide("a", 1, 5.0).harm("keeper-kill", "a", died_at)
    note_unread_answers(story.records)
    (entry,) = next(call for call in story.records.calls if call.operation == CHANGE).entries
    assert entry.told is was_read
