"""How the audit judges message groups: their order, and the releases that stop them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.story import UNEXPLAINED, Story


def stopped() -> Story:
    """Worker a releases the message before its task begins, and runs it later."""
    story = Story(task="step", group="g").receive("a", 1, 1.0).hide("a", 1, 2.0, 0)
    return story.receive("a", 2, 3.0).run("a", 2, 3.1, 3.2).delete("a", 2, 3.3)


def test_a_message_is_released_with_the_message_ahead_of_it() -> None:
    verdict = stopped().ahead("a", 1.0, back=2.1, done=2.9).explained()
    assert verdict.redeliveries == ["ahead of its group was released"]


def test_a_message_behind_a_finished_message_may_not_be_released() -> None:
    verdict = stopped().ahead("a", 1.0, done=2.5).verdict()
    assert verdict.faults == UNEXPLAINED


def test_a_message_behind_another_workers_message_may_not_be_released() -> None:
    verdict = stopped().ahead("b", 1.0, back=2.1, done=2.9).verdict()
    assert verdict.faults == UNEXPLAINED


@pytest.mark.parametrize(
    ("refused", "cause"),
    [
        pytest.param(0.95, "the delete of a message of its group was refused", id="just before"),
        pytest.param(1.9, "the delete of a message of its group was refused", id="meanwhile"),
        pytest.param(2.2, "nothing", id="later"),
        pytest.param(0.6, "nothing", id="long before"),
    ],
)
def test_a_message_is_released_when_its_worker_learns_that_the_one_ahead_is_anothers(
    refused: float, cause: str
) -> None:
    verdict = stopped().lose_ahead("a", -6.0, other="b", refused=refused).verdict()
    assert verdict.redeliveries == [cause]
    assert bool(verdict.faults) is (cause == "nothing")


def test_a_message_whose_task_ran_is_not_released_with_another() -> None:
    story = Story(task="step", group="g").receive("a", 1, 1.0).run("a", 1, 1.1)
    story.hide("a", 1, 2.0, 0).receive("b", 2, 3.0).run("b", 2, 3.1, 3.2).delete("b", 2, 3.3)
    verdict = story.ahead("a", 1.0, back=2.1, done=2.9).verdict()
    assert UNEXPLAINED[0] in verdict.faults


@pytest.mark.parametrize("start", [1.1, 2.85])
def test_no_message_may_begin_before_those_ahead_of_it_are_deleted(start: float) -> None:
    story = Story(task="step", group="g").receive("a", 1, 1.0).run("a", 1, start, 3.2)
    verdict = story.delete("a", 1, 3.3).ahead("b", 0.9, done=2.9).verdict()
    assert verdict.faults == [
        "began on a as receive 1, before ahead of its group was done and deleted"
    ]


def test_on_other_queues_messages_may_begin_in_any_order() -> None:
    story = Story(task="step").receive("a", 1, 1.0).run("a", 1, 1.1, 3.2)
    assert story.delete("a", 1, 3.3).ahead("b", 0.9, done=2.9).verdict().faults == []


def test_a_message_counts_as_deleted_by_the_repeat_of_a_delayed_delete() -> None:
    story = Story(task="step", group="g").receive("a", 1, 1.0).run("a", 1, 3.0, 3.2)
    story.delete("a", 1, 3.3).ahead("b", 0.9, done=2.9)
    delayed = story.records.calls[-1]
    again = replace(delayed, forwarded=delayed.started + 0.05, entries=list(delayed.entries))
    delayed.forwarded = delayed.done = delayed.ended = 4.0
    story.records.calls.append(again)
    assert story.verdict().faults == []
