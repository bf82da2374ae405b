"""The audit itself: it must find events that nothing explains, and accept causes that do."""

from __future__ import annotations

import pytest

from tests.soak.audit import ONCE
from tests.soak.story import UNEXPLAINED, Story
from tests.soak.test_causes import expired, waiting
from tests.soak.test_keeper_causes import not_handed_over
from tests.soak.trace import trace

UNEXECUTED = "was received 2 times, receive 2 without an execution and without a cause"


def test_a_message_done_once_is_accounted_for() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 8.0).hide("a", 1, 5.0)
    verdict = story.delete("a", 1, 8.1).verdict()
    assert verdict.account == ONCE
    assert verdict.faults == verdict.causes == []


def test_a_duplicate_that_nothing_explains_is_a_fault() -> None:
    verdict = expired().verdict()
    assert verdict.duplicates == 1
    assert verdict.account == "done again"
    assert verdict.faults == UNEXPLAINED


def test_a_message_deleted_and_never_done_is_lost() -> None:
    verdict = Story().receive("a", 1, 1.0).run("a", 1, 1.5).delete("a", 1, 2.0).verdict()
    assert verdict.account == "lost"
    assert verdict.faults == [
        "was deleted as receive 1 without a reason",
        "was lost: deleted and never done",
    ]


def test_a_worker_may_not_delete_a_message_that_another_worker_ran() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).harm("kill", "a", 2.01)
    story.harm("keeper-kill", "a", 2.02)
    verdict = story.receive("b", 2, 7.2).delete("b", 2, 7.3).verdict()
    assert verdict.faults == ["was deleted as receive 2 without a reason", UNEXECUTED]


def test_a_message_that_vanishes_is_a_fault() -> None:
    verdict = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).verdict()
    assert verdict.faults == ["is gone, and no one deleted it"]


def test_a_message_left_in_its_queue_is_a_fault() -> None:
    story = Story()
    story.records.left.add("m")
    assert story.verdict().faults == ["was still in its queue at the end"]


def test_a_task_acked_early_may_be_lost_with_its_process() -> None:
    story = Story(task="early").receive("a", 1, 1.0).run("a", 1, 1.5).delete("a", 1, 1.6)
    assert story.verdict().faults == ["was lost: deleted and never done"]
    verdict = story.harm("pool-kill", "a", 3.0, pid=1).explained()
    assert verdict.account.startswith("lost by design")


def test_an_expired_task_must_have_been_discarded() -> None:
    story = Story(expires="soon").receive("a", 1, 1.0).delete("a", 1, 1.2)
    assert "was lost: deleted and never done" in story.verdict().faults
    assert story.expire("a", 1, 1.1).explained().account == "expired"


def test_a_dead_letter_must_have_used_up_its_receives() -> None:
    story = Story(task="flaky", max_receive_count=2).receive("a", 1, 1.0)
    story.run("a", 1, 1.1, 1.2, "fail").hide("a", 1, 1.3, 0)
    story.records.dead.add("m")
    assert story.verdict().faults == ["became a dead letter too early"]
    story.receive("a", 2, 1.5).run("a", 2, 1.6, 1.7, "fail").hide("a", 2, 1.8, 0)
    assert story.explained().account == "dead letter"


def dead() -> Story:
    """Worker a releases the message on its last receive, without a start of its task."""
    story = Story(max_receive_count=1).receive("a", 1, 1.0).hide("a", 1, 2.0, 0)
    story.records.dead.add("m")
    return story


def test_the_last_receive_of_a_dead_letter_needs_a_cause_too() -> None:
    assert dead().verdict().faults == ["became a dead letter after receive 1 without a cause"]


def sent_again(most: int) -> Story:
    """Worker a receives the message for the first of `most` times, and deletes it for a copy."""
    story = Story(max_receive_count=most).receive("a", 1, 1.0).send_again("a", 1.1)
    return story.delete("a", 1, 1.3)


def acked_early(count: int = 2) -> Story:
    """No delete of worker a succeeds. Worker b acks the message before it runs, and never runs it.

    Args:
        count: The receive count that b sees.
    """
    story = Story(task="early").receive("a", 1, 1.0).run("a", 1, 1.1, 9.0)
    story.delete("a", 1, 1.2, fails=True).harm("pause", "a", 4.0, 9.0)
    return story.receive("b", count, 7.2).delete("b", count, 7.3)


def discarded_by(worker: str) -> Story:
    """Worker a discards the message, but cannot delete it. Worker b deletes it."""
    story = Story(expires="soon").receive("a", 1, 1.0).delete("a", 1, 1.2, fails=True)
    story.harm("pause", "a", 1.3, 9.0).expire(worker, 1, 1.1)
    return story.receive("b", 2, 7.2).delete("b", 2, 7.3)


@pytest.mark.parametrize(
    ("story", "fault"),
    [
        (acked_early(), UNEXECUTED),
        (acked_early().harm("kill", "a", 9.1), UNEXECUTED),
        (discarded_by("a"), UNEXECUTED),
        (
            acked_early(4).run("b", 4, 7.4, 8.0),
            "was received 4 times, receive 2, 3 without an execution and without a cause",
        ),
    ],
)
def test_a_receive_that_starts_no_task_without_a_cause_is_a_fault(story: Story, fault: str) -> None:
    assert story.verdict().faults[-1] == fault


def again(ended: float) -> Story:
    """Worker a is stopped, receives its message again, and continues with it."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.1, ended).harm("pause", "a", 4.0, 8.0)
    return story.receive("a", 2, 8.1).delete("a", 2, 9.1)


def left_in_poll() -> Story:
    """Worker a is killed as it runs the message. Its keeper cannot keep it, and receives it."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.1).harm("kill", "a", 5.9)
    story.receive("a", 2, 7.1).hide("a", 2, 7.3, 0)
    return story.receive("b", 3, 7.5).run("b", 3, 7.6, 8.0).delete("b", 3, 8.1)


@pytest.mark.parametrize(
    ("story", "whys"),
    [
        (again(ended=9.0), ["its task still ran"]),
        (again(ended=4.5), ["its task had ended"]),
        (
            acked_early().harm("kill", "b", 7.35),
            ["lost by design: acked before it ran, and its process was killed"],
        ),
        (discarded_by("b").expire("a", 1, 1.1), ["its worker was stopped", "expired"]),
        (sent_again(1), ["sent again"]),
        (left_in_poll(), ["its worker was killed"]),
        (expired().harm("pause", "a", 4.0, 9.0), []),
        (
            not_handed_over().harm("keeper-kill", "a", 1.5),
            ["its keeper died before it was handed over"],
        ),
        (waiting(2.0).harm("warm", "a", 1.5), ["it waited in a shutdown"]),
        (dead().harm("kill", "a", 1.5), ["its worker was killed"]),
    ],
)
def test_each_other_receive_that_starts_no_task_has_its_cause(
    story: Story, whys: list[str]
) -> None:
    assert story.explained().unexecuted == whys


@pytest.mark.parametrize(
    ("harm", "cause"),
    [
        ("warm", "it waited in a warm shutdown"),
        ("break", "it was waiting when its worker lost the connection"),
    ],
)
def test_no_message_becomes_a_dead_letter_because_it_was_handed_around(
    harm: str, cause: str
) -> None:
    fault = f"became a dead letter because it was handed around: {cause}"
    assert dead().harm(harm, "a", 1.5).verdict().faults == [fault]
    for story in (
        dead().send_again("a", 1.8, fails=True),
        dead().harm("keeper-kill", "a", 1.6),
        dead().harm("forget", "a", 0.5),
    ):
        assert story.harm(harm, "a", 1.5).verdict().faults == []
    for story in (
        dead().send_again("b", 1.8),
        dead().send_again("a", 0.9),
        dead().harm("keeper-kill", "a", 0.9),
        dead().harm("forget", "b", 0.5),
    ):
        assert story.harm(harm, "a", 1.5).verdict().faults == [fault]


def test_a_message_whose_task_has_started_may_become_a_dead_letter() -> None:
    assert dead().run("a", 1, 1.1).cancels("a").harm("break", "a", 1.5).verdict().faults == []


def test_only_a_message_on_its_last_receive_may_be_deleted_for_a_copy() -> None:
    assert sent_again(2).verdict().faults[0] == "was deleted as receive 1 without a reason"
    assert sent_again(1).explained().account == "sent again"


def test_one_receive_may_not_be_run_twice() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).run("a", 1, 2.5, 3.0, pid=2)
    assert story.delete("a", 1, 3.1).verdict().faults == ["receive 1 was run twice"]


def test_a_worker_may_not_run_a_message_again_that_it_still_runs() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 9.0).harm("pause", "a", 4.0, 8.0)
    verdict = story.receive("a", 2, 8.1).run("a", 2, 8.2, 8.4).delete("a", 2, 9.1).verdict()
    assert verdict.faults == ["a ran it again although it knew of it"]
    assert verdict.causes == ["its worker was stopped"]


def test_a_trace_shows_the_whole_history_in_order() -> None:
    story = expired().stop_without_keeper("b", 4.0, 5.0).hide("a", 1, 5.0, fails=True)
    (verdict,) = [story.verdict()]
    told = trace(verdict.message, story.records).splitlines()
    parts = [line.split(maxsplit=1)[1] for line in told[1:12]]
    assert parts == [
        "soak  sends work to q",
        "a     receives it for 6 s, #1",
        "a     starts it, #1, in process 1",
        "b     ! pause until +5.000",
        "a     hides for 6 s #1: not done [500]",
        "b     receives it for 6 s, #2",
        "b     starts it, #2, in process 1",
        "b     ends it, #2",
        "b     deletes #2: done",
        "a     ends it, #1",
        *parts[10:],
    ]
