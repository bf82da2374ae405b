"""The audit itself: it must find events that nothing explains, and accept causes that do."""

from __future__ import annotations

from tests.soak.audit import ONCE
from tests.soak.story import Story
from tests.soak.test_causes import expired
from tests.soak.trace import trace


def test_a_message_done_once_is_accounted_for() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 8.0).hide("a", 1, 5.0)
    verdict = story.delete("a", 1, 8.1).verdict()
    assert verdict.account == ONCE
    assert verdict.faults == verdict.causes == []


def test_a_duplicate_that_nothing_explains_is_a_fault() -> None:
    verdict = expired().verdict()
    assert verdict.duplicates == 1
    assert verdict.account == "done again"
    assert verdict.faults == ["became visible after receive 1 without a cause"]


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
    assert verdict.faults == ["was deleted as receive 2 without a reason"]


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
    verdict = story.harm("pool-kill", "a", 3.0, pid=1).verdict()
    assert verdict.account.startswith("lost by design")
    assert verdict.faults == []


def test_an_expired_task_must_have_been_discarded() -> None:
    story = Story(expires="soon").receive("a", 1, 1.0).delete("a", 1, 1.2)
    assert "was lost: deleted and never done" in story.verdict().faults
    verdict = story.expire("a", 1, 1.1).verdict()
    assert verdict.account == "expired"
    assert verdict.faults == []


def test_a_dead_letter_must_have_used_up_its_receives() -> None:
    story = Story(task="flaky", max_receive_count=2).receive("a", 1, 1.0)
    story.run("a", 1, 1.1, 1.2, "fail").hide("a", 1, 1.3, 0)
    story.records.dead.add("m")
    assert story.verdict().faults == ["became a dead letter too early"]
    story.receive("a", 2, 1.5).run("a", 2, 1.6, 1.7, "fail").hide("a", 2, 1.8, 0)
    verdict = story.verdict()
    assert verdict.account == "dead letter"
    assert verdict.faults == []


def test_the_last_receive_of_a_dead_letter_needs_a_cause_too() -> None:
    story = Story(max_receive_count=1).receive("a", 1, 1.0)
    story.records.dead.add("m")
    assert story.verdict().faults == ["became a dead letter after receive 1 without a cause"]
    assert story.hide("a", 1, 1.6, 0).harm("kill", "a", 1.5).verdict().faults == []


def test_each_receive_that_starts_no_task_has_its_reason() -> None:
    story = Story().receive("a", 1, 1.0).hide("a", 1, 1.5, 0).receive("a", 2, 1.7)
    story.run("a", 2, 1.8, 9.0).harm("pause", "a", 4.0, 8.0).receive("a", 3, 8.1)
    story.delete("a", 3, 9.1).harm("break", "a", 1.4)
    assert story.verdict().unexecuted == [
        "it was waiting when its worker lost the connection",
        "its task had begun with an earlier receive",
    ]


def test_a_message_that_expired_or_became_a_dead_letter_has_its_reason_too() -> None:
    story = Story(expires="soon").receive("a", 1, 1.0).delete("a", 1, 1.2).expire("a", 1, 1.1)
    assert story.verdict().unexecuted == ["expired"]
    story = Story(max_receive_count=1).receive("a", 1, 1.0).harm("kill", "a", 1.5)
    story.hide("a", 1, 1.6, 0)
    story.records.dead.add("m")
    assert story.verdict().unexecuted == ["its worker was killed"]


def test_only_a_message_on_its_last_receive_may_be_deleted_for_a_copy() -> None:
    story = Story(max_receive_count=2).receive("a", 1, 1.0).send_again("a", 1.1)
    verdict = story.delete("a", 1, 1.3).verdict()
    assert verdict.faults[0] == "was deleted as receive 1 without a reason"
    story = Story(max_receive_count=1).receive("a", 1, 1.0).send_again("a", 1.1)
    verdict = story.delete("a", 1, 1.3).verdict()
    assert verdict.account == "sent again"
    assert verdict.faults == []


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
