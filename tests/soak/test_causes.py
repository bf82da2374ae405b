"""What explains a redelivery, and what does not."""

from __future__ import annotations

import math

import pytest

from tests.soak.audit import Verdict
from tests.soak.starving import note_stall
from tests.soak.story import TIMEOUT, UNEXPLAINED, Story
from tests.soak.table import DISTURBED
from tests.support.stalls import Stall

#: Its second receive has no cause.
UNEXPLAINED_AGAIN = ["became visible after receive 2 without a cause"]
BOTH_KILLED = "its worker and its keeper were killed"
CANCELLED = "it was cancelled when the connection was lost, as configured"
TOO_LATE = "but an extension was confirmed too late"


def expired() -> Story:
    """Worker a starts the message. Worker b receives it after the timeout and does it too."""
    return Story().receive("a", 1, 1.0).run("a", 1, 1.5, 9.0).done_again()


def released(at: float, ended: float, outcome: str = "end") -> Story:
    """Worker a starts and releases the message, and b does it."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, ended, outcome).hide("a", 1, at, 0)
    return story.receive("b", 2, at + 0.2).run("b", 2, at + 0.3, at + 1).delete("b", 2, at + 1.1)


def ended_undeleted() -> Story:
    """Worker a does the message but does not delete it, and b does it again."""
    return Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).done_again()


@pytest.mark.parametrize(
    ("story", "cause"),
    [
        (expired().harm("pause", "a", 4.0, 9.0), "its worker was stopped"),
        (expired().harm("starved", "a", 5.1, 7.0), "the machine was too busy"),
        (expired().harm("starved", "", 5.1, 7.0), "the machine was too busy"),
        (expired().harm("kill", "a", 5.5), "its worker was killed"),
        (expired().harm("kill", "a", 4.0).harm("keeper-kill", "a", 4.5), BOTH_KILLED),
        (expired().harm("keeper-kill", "a", 3.9).harm("kill", "a", 4.0), BOTH_KILLED),
        (expired().harm("cold", "a", 3.0).end("a", 4.0), "its worker exited in a cold shutdown"),
        (ended_undeleted().harm("kill", "a", 2.04).harm("keeper-kill", "a", 2.5), BOTH_KILLED),
        (released(3.0, 9.0).harm("cold", "a", 2.0), "it ran in a cold shutdown"),
        (released(3.0, 9.0).harm("soft", "a", 2.0), "it ran in a soft shutdown"),
        (released(3.0, math.inf).harm("pool-kill", "a", 2.0, pid=1), "its pool process was killed"),
        (released(3.0, 2.9, "fail"), "it failed by design"),
        (released(3.0, 2.9, "reject"), "it was rejected by design"),
        (released(3.0, math.inf).cancels("a").harm("break", "a", 2.0), CANCELLED),
        (released(3.0, 2.1).cancels("a").harm("break", "a", 2.0), CANCELLED),
    ],
)
def test_a_timely_cause_at_its_own_worker_explains_a_duplicate(story: Story, cause: str) -> None:
    assert story.explained().causes == [cause]


@pytest.mark.parametrize(
    ("seconds", "causes"), [(1.9, ["the machine stalled"]), (0.9, ["nothing"])]
)
def test_a_stall_of_the_soaks_own_process_explains_the_time_that_was_measured(
    seconds: float, causes: list[str]
) -> None:
    story = expired()
    note_stall(story.records, Stall(until=7.0, seconds=seconds))
    verdict = story.verdict()
    assert verdict.causes == causes
    assert bool(verdict.faults) is (causes == ["nothing"])


@pytest.mark.parametrize(
    "story",
    [
        # Another worker was stopped.
        expired().harm("pause", "b", 4.0, 9.0),
        # It was stopped too early.
        expired().harm("pause", "a", 1.6, 4.5),
        # It was stopped too late.
        expired().harm("pause", "a", 7.1, 9.0),
        # It was stopped too briefly.
        expired().harm("pause", "a", 5.5, 6.0),
        # Another worker was starved.
        expired().harm("starved", "b", 5.1, 7.0),
        # Another worker was killed.
        expired().harm("kill", "b", 4.0),
        # It was killed after the timeout.
        expired().harm("kill", "a", 7.1),
        # A warm shutdown keeps running tasks.
        expired().harm("warm", "a", 4.0),
        # It exited before its task ended.
        expired().harm("warm", "a", 4.0).end("a", 6.0),
        # Leases outlive a connection.
        expired().harm("break", "a", 4.0),
        # No call was even tried.
        expired().harm("cut off", "a", 4.0, 9.0),
        # One failed call, then silence.
        expired().hide("a", 1, 5.1, fails=True),
        # Time enough to delete it, then killed.
        ended_undeleted().harm("kill", "a", 6.9),
        # Time enough, then it was stopped.
        ended_undeleted().harm("pause", "a", 5.0, 9.0),
        # Released while it ran.
        released(3.0, 9.0),
        # Released in a warm shutdown.
        released(3.0, 9.0).harm("warm", "a", 2.0),
        # Released before a cold shutdown.
        released(3.0, 9.0).harm("cold", "a", 4.0),
        # Released for a lost connection.
        released(3.0, 9.0).harm("break", "a", 2.0),
        # Another process.
        released(3.0, 9.0).harm("pool-kill", "a", 2.0, pid=2),
        # Released though it succeeded.
        released(3.0, 2.0),
        # It had succeeded long before the exit.
        released(6.0, 2.0).harm("cold", "a", 5.0),
        # Released before it failed.
        released(3.0, 4.5, "fail"),
        # Another worker's handle.
        expired().hide("c", 1, 3.0, 0),
    ],
)
def test_no_other_cause_explains_a_duplicate(story: Story) -> None:
    assert UNEXPLAINED[0] in story.verdict().faults


def refused() -> Story:
    """Each call of worker a fails until its lease expires, and b does the message, too."""
    story = expired()
    for tenth in range(10):
        story.hide("a", 1, 5.0 + tenth / 5, fails=True)
    return story


def test_calls_that_fail_until_the_timeout_explain_a_duplicate() -> None:
    assert refused().explained().causes == ["SQS refused or lost its calls"]


def deletes_failed(first: float) -> Verdict:
    """Worker a shuts down as its task ends, and no delete succeeds before its exit."""
    story = ended_undeleted().harm("warm", "a", 2.0).end("a", 7.1)
    for half in range(10):
        if 2.05 + half / 2 >= first:
            story.delete("a", 1, 2.05 + half / 2, fails=True)
    return story.verdict()


# A prefork worker in shutdown looks for results once a second.
@pytest.mark.parametrize("first", [2.05, 3.55])
def test_deletes_that_fail_until_the_worker_gives_up_explain_a_duplicate(first: float) -> None:
    verdict = deletes_failed(first)
    assert verdict.faults == []
    assert verdict.causes == ["SQS accepted no delete of it while its worker shut down"]


def deletes_failed_as_it_was_killed() -> Story:
    """Worker a shuts down, and is killed as soon as it has sent a delete, which fails.

    Its keeper continues for the flush timeout, and extends the lease for that.
    """
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).hide("a", 1, 5.1)
    story.harm("warm", "a", 1.8).harm("kill", "a", 2.5)
    for half in range(10):
        story.delete("a", 1, 2.05 + half / 2, fails=True)
    return story.receive("b", 2, 11.2).run("b", 2, 11.5, 12.0).delete("b", 2, 12.1)


def test_deletes_that_fail_until_a_killed_workers_keeper_gives_up_explain_a_duplicate() -> None:
    verdict = deletes_failed_as_it_was_killed().explained()
    assert verdict.causes == ["SQS accepted no delete of it while its worker shut down"]


def test_a_keeper_does_not_release_a_message_that_its_worker_began_to_delete() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).delete("a", 1, 2.05, fails=True)
    story.harm("kill", "a", 2.5).hide("a", 1, 3.0, 0).receive("b", 2, 3.2)
    assert story.run("b", 2, 3.3, 4.0).delete("b", 2, 4.1).verdict().faults == UNEXPLAINED


def test_deletes_that_begin_late_explain_nothing() -> None:
    assert deletes_failed(4.5).faults == UNEXPLAINED


def deletes_reset(*, extended: bool) -> Story:
    """Worker a does the message. Its deletes are reset, so a receives it again, and then b.

    The first receive hides it for 3 s. An extension that is reset, too, may hide it for another
    3 s at any later time. So the second lease, of 6 s, counts only until 7.2.
    """
    story = Story(timeouts=(3,)).receive("a", 1, 1.0, seconds=3).run("a", 1, 1.1, 1.5)
    if extended:
        story.hide("a", 1, 3.0, 3, fails=True, fault="reset")
    for tenth in range(16, 41, 3):
        story.delete("a", 1, tenth / 10, fails=True, fault="reset")
    story.receive("a", 2, 4.2)
    # After the lease has expired, tries become rarer and rarer.
    for at in (4.3, 5.0, 5.6, 6.2, 6.8, 7.2, 8.1):
        story.delete("a", 2, at, fails=True, fault="reset")
    return story.receive("b", 3, 10.3).run("b", 3, 10.4, 11.0).delete("b", 3, 11.1)


def test_a_lease_counts_no_longer_than_an_older_unanswered_extension() -> None:
    assert deletes_reset(extended=True).verdict().faults == []
    assert deletes_reset(extended=False).verdict().faults == UNEXPLAINED_AGAIN


def extended_and_failed(extended: float, failed: float, *, told: bool = True) -> Story:
    """Worker a's task fails. Its message becomes visible without a release, and b receives it."""
    story = Story(task="flaky").receive("a", 1, 1.0).run("a", 1, 1.5, failed, "fail")
    story.hide("a", 1, extended, told=told)
    until = extended + 6.2
    return story.receive("b", 2, until).run("b", 2, until, until + 1).delete("b", 2, until + 1.1)


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (extended_and_failed(6.95, 8.0), TOO_LATE),
        (extended_and_failed(5.0, 7.5, told=False), "but its worker counted the lease as expired"),
        (extended_and_failed(5.0, 8.0).harm("pause", "a", 5.011, 7.5), TOO_LATE),
    ],
)
def test_a_message_that_others_may_have_is_not_released(story: Story, why: str) -> None:
    assert story.explained().redeliveries == [f"it failed by design, {why}"]


@pytest.mark.parametrize(
    "story",
    [
        # It was extended in time.
        extended_and_failed(5.0, 8.0),
        # Its lease had not expired.
        extended_and_failed(5.0, 5.5, told=False),
        # It had read the answer.
        extended_and_failed(5.0, 8.0).harm("pause", "a", 6.2, 7.5),
    ],
)
def test_a_message_that_no_one_else_can_have_must_be_released(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def unread() -> Story:
    """The answer with the message never reaches worker a, and b does the message."""
    return Story().receive("a", 1, 1.0, told=False).done_again()


def test_a_message_that_its_worker_never_saw_may_be_redelivered() -> None:
    verdict = unread().verdict()
    assert verdict.faults == verdict.causes == []
    assert verdict.redeliveries == ["the answer to its receive was lost"]


def test_a_message_that_its_worker_ignored_may_not_be_redelivered() -> None:
    story = Story().receive("a", 1, 1.0).done_again()
    assert story.verdict().faults == UNEXPLAINED


def cut(lost: float) -> Story:
    """Worker a loses its connection. It receives the message at 1.0 and ignores it."""
    return Story().receive("a", 1, 1.0).harm("break", "a", lost).done_again()


@pytest.mark.parametrize("lost", [0.5, 1.0, 1.2, 1.9])
def test_a_keeper_reads_a_message_although_its_worker_loses_the_connection(lost: float) -> None:
    assert cut(lost).verdict().faults == UNEXPLAINED


@pytest.mark.parametrize(
    ("lost", "paused", "is_explained"),
    [(1.2, 0, True), (0.7, 0, True), (0.5, 0, False), (0.1, 0.8, True), (0.1, 0.4, False)],
)
def test_a_message_that_arrives_as_the_connection_is_lost_is_released(
    lost: float, paused: float, *, is_explained: bool
) -> None:
    # Its keeper polls until the worker has closed its consumer, which a stopped worker can't.
    story = Story().harm("break", "a", lost).stop_without_keeper("a", lost, lost + paused)
    story.receive("a", 1, 1.0).hide("a", 1, 1.3, 0).receive("b", 2, 1.5)
    verdict = story.run("b", 2, 1.6, 2.0).delete("b", 2, 2.1).verdict()
    why = "it was waiting when its worker lost the connection"
    assert verdict.redeliveries == [why if is_explained else "nothing"]


def answered_after_its_keeper_had_ended(*, fault: str, ended: float) -> Story:
    """Worker a is killed. Its keeper waits for its last poll, which is answered at 4.0."""
    story = Story().receive("a", 1, 1.0, answered=4.0).harm("kill", "a", 0.9)
    story.records.calls[-1].fault = fault
    story.records.workers["a"].keeper_ended = ended
    return story.receive("b", 2, 7.2).run("b", 2, 7.3, 8.0).delete("b", 2, 8.1)


def test_a_keeper_does_not_wait_indefinitely_for_its_last_poll() -> None:
    verdict = answered_after_its_keeper_had_ended(fault="late answer", ended=3.9).explained()
    assert verdict.redeliveries == ["its receive was answered after its keeper had ended"]


def test_a_keeper_that_was_killed_did_not_only_wait_too_briefly() -> None:
    story = answered_after_its_keeper_had_ended(fault="slow", ended=4.2)
    (redelivery,) = story.harm("keeper-kill", "a", 4.15).verdict().redeliveries
    assert redelivery == BOTH_KILLED


@pytest.mark.parametrize(("fault", "ended"), [("", 3.9), ("late answer", 5.0)])
def test_a_keeper_waits_for_a_poll_that_nothing_delays(fault: str, ended: float) -> None:
    verdict = answered_after_its_keeper_had_ended(fault=fault, ended=ended).verdict()
    assert verdict.faults == UNEXPLAINED


def taken_along(pool: str = "prefork") -> Story:
    """Worker a shuts down, receives the message by its last poll, and exits without a call."""
    return Story(pool=pool).harm("warm", "a", 0.5).receive("a", 1, 1.0).end("a", 1.5).done_again()


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(taken_along(), id="in a shutdown"),
        pytest.param(taken_along(pool="gevent"), id="in a shutdown without an event loop"),
        pytest.param(taken_along().harm("kill", "a", 1.4), id="killed in a shutdown"),
        pytest.param(taken_along().harm("kill", "a", 0.9), id="killed before the answer"),
    ],
)
def test_a_keeper_may_not_leave_a_message_unread_at_the_end_of_its_worker(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_message_is_left_unread_if_the_worker_and_its_keeper_are_killed() -> None:
    story = taken_along().harm("kill", "a", 1.4).harm("keeper-kill", "a", 1.5)
    assert story.verdict().redeliveries == [BOTH_KILLED]


def test_a_worker_that_exits_much_later_did_not_leave_it_unread() -> None:
    story = Story().receive("a", 1, 1.0).harm("pause", "a", 4.0, 8.0).done_again()
    verdict = story.harm("warm", "a", 20.0).end("a", 21.0).explained()
    assert verdict.redeliveries == ["its worker was stopped"]


def asked_before_a_pause(paused_until: float) -> Story:
    """Worker a is stopped before it sends a receive. When it continues, it ignores the message."""
    story = Story().harm("pause", "a", 0.5, paused_until).receive("a", 1, 7.1)
    return story.receive("b", 2, 13.3).run("b", 2, 13.5, 14.0).delete("b", 2, 14.1)


def test_a_worker_that_was_stopped_before_it_sent_its_receive_may_ignore_a_message() -> None:
    assert asked_before_a_pause(7.0).verdict().faults == []
    assert asked_before_a_pause(6.0).verdict().faults == UNEXPLAINED


def released_late(paused_until: float) -> Story:
    """Worker a releases a message that b has received meanwhile, and c receives it too."""
    story = Story().receive("a", 1, 1.0).harm("pause", "a", 4.0, paused_until)
    story.receive("b", 2, 7.2).run("b", 2, 7.5, 15.0).hide("a", 1, 9.7, 0)
    return story.receive("c", 3, 10.0).run("c", 3, 10.1, 11.0).delete("c", 3, 11.1)


def cut_short(first_late: float) -> Story:
    """Worker x extends its lease, which ended at 7, though b has the message for longer."""
    story = Story(timeouts=(6, 30)).receive("x", 1, 1.0).run("x", 1, 1.5)
    story.receive("b", 2, 7.1, seconds=30).run("b", 2, 7.2).hide("x", 1, first_late)
    again = first_late + TIMEOUT + 0.2
    return story.receive("c", 3, again).run("c", 3, again, again + 1).delete("c", 3, again + 2)


def test_the_owner_of_an_expired_lease_may_cut_the_next_one_short() -> None:
    verdict = cut_short(8.0).verdict()
    assert verdict.faults == UNEXPLAINED
    assert verdict.rows == [DISTURBED]


def test_the_owner_of_an_expired_lease_must_give_up_after_one_timeout() -> None:
    assert UNEXPLAINED_AGAIN[0] in cut_short(14.0).verdict().faults


def test_a_late_release_that_breaks_the_next_lease_is_a_fault() -> None:
    assert released_late(paused_until=8.0).verdict().faults == UNEXPLAINED_AGAIN


def test_a_late_release_that_a_standstill_delayed_is_no_fault() -> None:
    verdict = released_late(paused_until=9.6).explained()
    assert verdict.causes == ["a release was delayed until its lease had expired"]


def released_after_its_lease_was_ended(failed_at: float = 12.0) -> Story:
    """A late release of a ends b's lease. b cannot know that, fails, and ends the lease of c."""
    story = Story().receive("a", 1, 1.0).harm("pause", "a", 4.0, 9.6)
    story.receive("b", 2, 7.2).run("b", 2, 7.5, failed_at, "fail").hide("a", 1, 9.7, 0)
    story.receive("c", 3, 10.0).run("c", 3, 10.1, 15.0).hide("b", 2, 11.2)
    story.hide("b", 2, 12.1, 0).receive("d", 4, 12.3).run("d", 4, 12.4, 13.0)
    return story.delete("d", 4, 13.1)


def test_a_worker_unaware_of_its_lost_lease_may_end_the_next_lease_by_a_release() -> None:
    verdict = released_after_its_lease_was_ended().explained()
    assert verdict.redeliveries[1:] == ["a release was delayed until its lease had expired"] * 2


def test_a_worker_needs_a_reason_for_a_release_that_ends_the_next_lease() -> None:
    verdict = released_after_its_lease_was_ended(failed_at=14.0).verdict()
    assert verdict.faults[0] == "became visible after receive 3 without a cause"


def set_aside(
    *, back: float = 7.2, answered: bool = False, again: bool = False, fault: str = "reset"
) -> Story:
    """The answer to a's release is lost. a receives the message again, and makes no call for it."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "fail")
    is_lost = back > TIMEOUT and not answered
    for at in (2.1, 3.0, 4.0, 5.0, 6.0, 6.9) if is_lost else (2.1,):
        story.hide("a", 1, at, 0, fails=is_lost, told=answered, fault=fault)
    for count in (2, 3) if again else (2,):
        story.receive("a", count, back)
        back += TIMEOUT + 0.2
    story.receive("b", count + 1, back).run("b", count + 1, back + 0.1, back + 1)
    return story.delete("b", count + 1, back + 1.1)


def test_a_worker_sets_a_message_aside_once_while_an_older_release_may_take_effect() -> None:
    assert set_aside().explained().redeliveries[1] == "an older release of it was delayed"


def test_a_stopped_keeper_cannot_know_that_the_older_release_caused_the_redelivery() -> None:
    verdict = set_aside(back=5.0).harm("pause", "a", 4.5, 7.5).explained()
    assert verdict.redeliveries[1] == "an older release of it was delayed"


@pytest.mark.parametrize(
    "story",
    [
        # It read the message in time.
        set_aside(back=5.0).harm("pause", "a", 4.5, 6.5),
        # Its keeper read it in time.
        set_aside(back=5.0).stop_without_keeper("a", 4.5, 7.5),
        # That release made it visible.
        set_aside(back=2.3),
        # The release was answered.
        set_aside(answered=True),
        # The release failed within SQS.
        set_aside(fault="500"),
        # It was set aside twice.
        set_aside(again=True),
    ],
)
def test_no_other_release_makes_a_worker_set_a_message_aside(story: Story) -> None:
    assert "without a cause" in story.verdict().faults[-1]


def set_aside_later(*, unread: bool) -> Story:
    """The answer to a's release is lost. a sets the message aside at its third receive."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "fail")
    story.hide("a", 1, 2.1, 0, told=False, fault="reset")
    story.receive("a", 2, 2.5, told=not unread)
    story.receive("a", 3, 8.7).receive("b", 4, 14.9).run("b", 4, 15.0, 15.5)
    return story.delete("b", 4, 15.6)


def set_aside_after_a_busy_time(*, sent: bool) -> Story:
    """A release by a is sent after its lease has expired, or never. b does the message."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "fail")
    story.harm("starved", "a", 1.9, 7.4)
    if sent:
        story.hide("a", 1, 7.5, 0)
    story.receive("a", 2, 8.0).receive("b", 3, 14.2).run("b", 3, 14.3, 15.0)
    return story.delete("b", 3, 15.1)


@pytest.mark.parametrize("sent", [True, False])
def test_a_keeper_may_have_given_up_a_release_on_a_busy_machine(*, sent: bool) -> None:
    verdict = set_aside_after_a_busy_time(sent=sent).logs_unrepeated("a").explained()
    assert verdict.redeliveries[1] == "an older release of it was delayed"


@pytest.mark.parametrize("sent", [True, False])
def test_the_log_must_report_a_release_that_was_given_up(*, sent: bool) -> None:
    assert set_aside_after_a_busy_time(sent=sent).verdict().faults == UNEXPLAINED_AGAIN


def test_a_later_extension_by_the_old_handle_does_not_undo_a_given_up_release() -> None:
    story = set_aside_after_a_busy_time(sent=False).logs_unrepeated("a").hide("a", 1, 8.1)
    assert story.explained().redeliveries[1] == "an older release of it was delayed"


def answered_too_late_for_its_keeper(*, busy_from: float) -> Story:
    """A release by a is answered at once, but was planned while the machine was busy."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "fail").hide("a", 1, 4.9)
    story.harm("starved", "a", busy_from, 6.0).hide("a", 1, 6.0, 5).receive("a", 2, 11.1)
    return story.receive("b", 3, 17.3).run("b", 3, 17.4, 18.0).delete("b", 3, 18.1)


def test_a_keeper_may_give_up_the_answer_to_a_release_that_it_planned_long_before() -> None:
    verdict = answered_too_late_for_its_keeper(busy_from=4.5).logs_unrepeated("a").verdict()
    assert verdict.redeliveries[1] == "an older release of it was delayed"


@pytest.mark.parametrize(
    "story",
    [
        # Its log does not report it.
        answered_too_late_for_its_keeper(busy_from=4.5),
        # Hardly busy.
        answered_too_late_for_its_keeper(busy_from=5.9).logs_unrepeated("a"),
    ],
)
def test_otherwise_a_keeper_waits_for_the_answer(story: Story) -> None:
    assert story.verdict().redeliveries[1] == "nothing"


def test_a_receive_that_its_worker_never_saw_does_not_count_as_setting_aside() -> None:
    verdict = set_aside_later(unread=True).explained()
    assert verdict.redeliveries[2] == "an older release of it was delayed"


def test_a_receive_that_its_worker_saw_counts_as_setting_aside() -> None:
    faults = set_aside_later(unread=False).verdict().faults
    assert "became visible after receive 3 without a cause" in faults


def left_to_its_timeout(
    *, back: float = 7.2, answered: bool = False, fault: str = "reset"
) -> Story:
    """The answer to a's release is lost. Later a's task fails again, and nothing releases it."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "fail")
    is_lost = back > TIMEOUT and not answered
    story.hide("a", 1, 2.1, 0, fails=is_lost, told=answered, fault=fault)
    story.receive("a", 2, back).run("a", 2, back + 0.5, back + 0.6, "fail")
    back += TIMEOUT + 0.2
    story.receive("b", 3, back).run("b", 3, back + 0.1, back + 1)
    return story.delete("b", 3, back + 1.1)


def test_a_worker_does_not_release_a_message_while_an_older_release_may_take_effect() -> None:
    why = "it failed by design, but an older release may still take effect"
    assert left_to_its_timeout().explained().redeliveries[1] == why


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(left_to_its_timeout(back=2.3), id="that release made it visible"),
        pytest.param(left_to_its_timeout(back=2.3, answered=True), id="the release was answered"),
        pytest.param(left_to_its_timeout(fault="500"), id="the release failed within SQS"),
    ],
)
def test_a_worker_must_release_a_message_without_an_older_open_release(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED_AGAIN


def test_a_worker_may_not_start_a_message_that_it_has_released() -> None:
    story = Story().receive("a", 1, 1.0).hide("a", 1, 2.0, 0).run("a", 1, 2.3, 3.0)
    story.receive("b", 2, 2.2).run("b", 2, 2.5, 4.0).delete("b", 2, 4.1)
    story.harm("warm", "a", 1.9)
    assert story.verdict().faults == UNEXPLAINED
    assert story.harm("cold", "a", 1.95).verdict().faults == []


def test_a_message_of_a_failed_task_that_is_acked_may_not_be_released() -> None:
    story = Story(task="bad").receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "fail")
    story.hide("a", 1, 2.1, 0).receive("b", 2, 2.3).run("b", 2, 2.5, 3.0, "fail")
    assert story.delete("b", 2, 3.1).verdict().faults == UNEXPLAINED


def test_a_task_that_was_stopped_for_its_lost_lease_may_be_started_again() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5).harm("pause", "a", 4.0, 8.0)
    story.note("a", "stop", 1, 8.1, pid=99).receive("a", 2, 8.2).run("a", 2, 8.3, 9.0)
    assert story.delete("a", 2, 9.1).explained().causes == ["its worker was stopped"]


def stopped_after_a_late_extension(stopped: float) -> Story:
    """Worker a is stopped, extends its lease after the expiry, and stops the task.

    Meanwhile, x has kept the message hidden by its stale handle.
    """
    story = Story().receive("x", 1, 1.0).run("x", 1, 1.5, 14.0).harm("pause", "x", 2.0, 7.5)
    story.receive("a", 2, 7.2).run("a", 2, 7.3).harm("pause", "a", 8.0, 14.0)
    story.hide("x", 1, 7.6).hide("x", 1, 11.6).delete("x", 1, 14.1)
    story.hide("a", 2, 14.05).note("a", "stop", 2, stopped, pid=99)
    return story.receive("b", 3, 20.2).run("b", 3, 20.3, 21.0).delete("b", 3, 21.1)


def test_a_lease_that_is_extended_while_its_task_is_stopped_may_expire() -> None:
    verdict = stopped_after_a_late_extension(stopped=14.07).explained()
    assert verdict.causes == ["its worker was stopped", "its worker was stopped"]


def test_a_task_may_not_be_stopped_once_its_lease_is_regained() -> None:
    assert stopped_after_a_late_extension(stopped=16.0).verdict().faults == UNEXPLAINED_AGAIN


def stopped_in_its_last_moment() -> Story:
    """Worker a is stopped past its expiry. Its task ends, and a receives the message again.

    The task was stopped because its lease was lost. So the redelivery waits, and is released in the
    shutdown.
    """
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 9.0).harm("pause", "a", 2.0, 8.95)
    story.receive("a", 2, 9.05).harm("warm", "a", 9.5).hide("a", 2, 11.0, 0)
    return story.receive("b", 3, 11.2).run("b", 3, 11.3, 12.0).delete("b", 3, 12.1)


def test_a_task_that_ended_as_it_was_stopped_may_be_redelivered() -> None:
    verdict = stopped_in_its_last_moment().terminates("a").explained()
    assert verdict.redeliveries == ["its worker was stopped", "it waited in a warm shutdown"]


def failed_in_its_last_moment(asleep_until: float) -> Verdict:
    """Worker a sleeps past the expiry, and its keeper receives the message again. It then fails."""
    story = Story(pool="gevent").terminates("a").receive("a", 1, 1.0)
    story.run("a", 1, 1.5, 9.0, "fail").stop_without_keeper("a", 3.0, asleep_until)
    for tenth in range(10):
        story.hide("a", 1, 5.0 + tenth / 5, fails=True)
    story.receive("a", 2, 7.2).hide("a", 2, 9.1, 1)
    return story.receive("b", 3, 10.2).run("b", 3, 10.3, 11.0).delete("b", 3, 11.1).verdict()


def test_a_task_that_failed_before_it_could_be_stopped_may_be_released() -> None:
    verdict = failed_in_its_last_moment(8.9)
    assert verdict.faults == []
    assert verdict.redeliveries == ["SQS refused or lost its calls", "it failed by design"]
    # Its worker could have stopped it.
    assert failed_in_its_last_moment(8.0).faults == UNEXPLAINED_AGAIN


def extended_in_its_last_moment(*, received: float, until: float = 7.0) -> Verdict:
    """Worker a continues just before its lease ends at 7.01, and its keeper extends it at once."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 9.0).harm("pause", "a", 3.0, until)
    return story.hide("a", 1, 7.005).receive("a", 2, received).delete("a", 2, 9.1).verdict()


def test_an_extension_that_took_effect_after_the_expiry_extended_nothing() -> None:
    verdict = extended_in_its_last_moment(received=7.002)
    assert verdict.faults == []
    assert verdict.redeliveries == ["its worker was stopped"]
    # It took effect before the receive, or there was time enough for it.
    assert extended_in_its_last_moment(received=7.1).faults == UNEXPLAINED
    assert extended_in_its_last_moment(received=7.002, until=5.0).faults == UNEXPLAINED


def test_the_same_worker_may_run_a_task_again_that_ended_as_it_was_stopped() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 9.0).harm("pause", "a", 2.0, 8.95)
    story.receive("a", 2, 9.05).run("a", 2, 9.5, 10.0, pid=2).delete("a", 2, 10.1)
    assert story.verdict().faults == ["a ran it again although it knew of it"]
    assert story.terminates("a").verdict().faults == []


def through_before_its_lease_was_over(paused: float) -> Story:
    """Worker a is stopped until its lease has expired. Its task ends, and a runs it again."""
    story = Story().terminates("a").receive("a", 1, 1.0).run("a", 1, 1.5, 3.0)
    story.harm("pause", "a", paused, 8.95)
    return story.receive("a", 2, 9.05).run("a", 2, 9.5, 10.0, pid=2).delete("a", 2, 10.1)


def test_a_task_whose_end_was_not_read_in_time_may_be_stopped() -> None:
    assert through_before_its_lease_was_over(paused=2.0).verdict().faults == []


def test_a_task_whose_end_could_be_read_may_not_be_stopped() -> None:
    faults = through_before_its_lease_was_over(paused=4.5).verdict().faults
    assert "a ran it again although it knew of it" in faults


def extended_too_late() -> Story:
    """Worker a gets no answer to an extension. It counts the lease as expired, and extends it."""
    story = Story(pool="threads").receive("a", 1, 1.0).hide("a", 1, 3.9, told=False)
    story.harm("pause", "a", 4.0, 8.95).hide("a", 1, 9.0)
    return story.receive("b", 2, 15.2).run("b", 2, 15.3, 16.0).delete("b", 2, 16.1)


def test_a_message_that_was_let_expire_may_expire_despite_a_late_extension() -> None:
    story = extended_too_late()
    assert story.verdict().faults == UNEXPLAINED
    assert story.drops("a").verdict().redeliveries == ["its worker was stopped"]


def test_no_message_is_let_expire_before_its_lease_has_expired() -> None:
    story = Story(pool="threads").drops("a").receive("a", 1, 1.0).hide("a", 1, 5.0)
    story.receive("b", 2, 11.2).run("b", 2, 11.3, 12.0).delete("b", 2, 12.1)
    assert story.verdict().faults == UNEXPLAINED


def answered_late(answered: float, extended: float) -> Story:
    """Worker a reads the message when most of its lease has passed, and extends it."""
    story = Story().receive("a", 1, 1.0, answered=answered).hide("a", 1, extended)
    back = extended + TIMEOUT + 0.2
    return story.receive("b", 2, back).run("b", 2, back, back + 1).delete("b", 2, back + 1.1)


def test_a_late_message_is_let_expire_unless_an_extension_is_confirmed_in_time() -> None:
    assert answered_late(6.9, 6.995).explained().redeliveries == ["its receive was answered late"]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(answered_late(6.9, 6.95), id="it was confirmed in time"),
        pytest.param(answered_late(4.9, 6.995), id="there was time enough to extend it"),
        pytest.param(answered_late(6.9, 6.995).run("a", 1, 6.95), id="it was started"),
    ],
)
def test_no_other_message_is_let_expire_with_on_lost_warn(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def after_an_unsent_retry(max_receive_count: int | None) -> Story:
    """Worker a cannot send a retry. It receives the message again, and releases it unstarted."""
    story = Story(task="again", max_receive_count=max_receive_count)
    story.receive("a", 1, 1.0).run("a", 1, 1.5, 2.0, "unsent").receive("a", 2, 7.2)
    story.hide("a", 2, 9.05, 0)
    return story.receive("b", 3, 9.3).run("b", 3, 9.5, 10.0).delete("b", 3, 10.1)


def test_a_redelivery_after_an_unsent_retry_may_wait_and_be_released() -> None:
    story = after_an_unsent_retry(max_receive_count=6)
    assert story.verdict().faults == UNEXPLAINED_AGAIN
    assert story.harm("break", "a", 9.0).verdict().faults == []


def test_without_dead_letters_a_message_with_an_unsent_retry_must_be_deleted() -> None:
    faults = after_an_unsent_retry(max_receive_count=None).harm("break", "a", 9.0).verdict().faults
    assert UNEXPLAINED_AGAIN[0] in faults


def test_a_task_that_is_not_stopped_continues_with_the_redelivery() -> None:
    assert stopped_in_its_last_moment().verdict().faults == UNEXPLAINED_AGAIN


def done_before(harm: str, pool: str = "prefork") -> Story:
    """Worker a does the task, shuts down at once, and is killed before it sends the delete."""
    story = Story(pool=pool).receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).harm(harm, "a", 2.05)
    story.harm("kill", "a", 4.9).harm("keeper-kill", "a", 4.95)
    return story.done_again()


def test_a_worker_may_be_killed_in_a_soft_shutdown_with_results_unread() -> None:
    assert done_before("soft").explained().causes == [BOTH_KILLED]


@pytest.mark.parametrize("story", [done_before("warm"), done_before("soft", pool="threads")])
def test_otherwise_a_result_is_read_at_once(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_message_whose_answer_is_read_after_its_timeout_is_ignored() -> None:
    story = Story().receive("a", 1, 1.0).harm("pause", "a", 0.5, 6.9).done_again()
    (redelivery,) = story.explained().redeliveries
    assert redelivery.startswith("it was read so long after")


def test_a_receive_that_its_worker_never_saw_may_expire_while_the_task_continues() -> None:
    # The delete by the first handle does nothing, because SQS has issued another.
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 7.6).harm("pause", "a", 4.0, 7.3)
    story.receive("a", 2, 7.2, told=False).delete("a", 1, 7.7)
    story.receive("b", 3, 13.4).run("b", 3, 13.5, 14.0).delete("b", 3, 14.1)
    assert story.verdict().faults == []


def retimed(receive: int, extension: int, back: float) -> Story:
    """The queue's timeout changes. Worker a uses the timeouts that it requested."""
    story = Story(max_receive_count=6, timeouts=(3, 10)).receive("a", 1, 1.0, seconds=receive)
    story.run("a", 1, 1.5, back + 2).hide("a", 1, 4.0, extension)
    return story.receive("b", 2, back).run("b", 2, back + 0.3, back + 1).delete("b", 2, back + 1.1)


@pytest.mark.parametrize(("receive", "extension"), [(6, 10), (10, 10), (3, 3), (10, 3)])
def test_a_lease_lasts_as_long_as_each_call_requested(receive: int, extension: int) -> None:
    over = 4.0 + extension
    story = retimed(receive, extension, over + 0.2)
    assert story.verdict().faults == UNEXPLAINED
    excused = retimed(receive, extension, over + 0.2).harm("pause", "a", over - 2.5, over + 1)
    assert excused.verdict().causes == ["its worker was stopped"]


def test_a_redelivery_before_the_timeout_of_the_receive_has_no_cause() -> None:
    """This happens if a worker assumes a queue's old timeout, and requests none."""
    story = Story(timeouts=(10,)).receive("a", 1, 1.0, seconds=10).run("a", 1, 1.5, 9.0)
    story.done_again()
    assert story.verdict().faults == UNEXPLAINED


def failed_as_it_came_again(received: float, *, seen: bool = False) -> Story:
    """Worker a's task fails as a receives its message again, and a releases the redelivery."""
    story = Story(task="flaky").receive("a", 1, 1.0).run("a", 1, 1.5, 9.0, "fail")
    story.harm("pause", "a", 4.0, 8.99)
    if seen:
        story.hide("a", 1, 9.02, 0)
    story.receive("a", 2, received).hide("a", 2, received + 0.1, 0)
    return story.receive("b", 3, 12.2).run("b", 3, 12.3, 13.0).delete("b", 3, 13.1)


def test_a_failure_is_noticed_late_and_may_count_for_a_redelivery_meanwhile() -> None:
    verdict = failed_as_it_came_again(9.1).explained()
    assert verdict.redeliveries == ["its worker was stopped", "it failed by design"]


@pytest.mark.parametrize(
    "story",
    [
        # It had been released for that failure.
        failed_as_it_came_again(9.1, seen=True),
        # It was received too late.
        failed_as_it_came_again(9.5),
    ],
)
def test_a_redelivery_after_a_failure_was_noticed_is_not_part_of_it(story: Story) -> None:
    assert UNEXPLAINED_AGAIN[0] in story.verdict().faults


def refused_batch(
    other: float,
    received: float = 1.5,
    *,
    pool: str = "threads",
    task: str = "together",
    arrives: bool = True,
) -> Story:
    """Worker a loses another message of the batch, and releases this one. b does it."""
    story = Story(pool=pool, task=task).receive_other("a", other)
    story.receive("a", 1, received).hide("a", 1, 7.0, 2)
    if arrives:
        story.arrive("a", 1, received + 0.1)
    return story.receive("b", 2, 9.2).run("b", 2, 9.3, 10.0).delete("b", 2, 10.1)


@pytest.mark.parametrize(
    "story",
    [
        # Lost while it waited for a thread.
        refused_batch(0.5),
        # Lost while it was gathered.
        refused_batch(0.5, received=6.8).harm("pause", "a", 0.6, 6.7),
    ],
)
def test_a_batch_that_lost_a_message_before_it_started_releases_the_others(story: Story) -> None:
    assert story.explained().redeliveries == ["a message of its batch was lost"]


@pytest.mark.parametrize(
    "story",
    [
        # No batch waits in such a pool.
        refused_batch(0.5, pool="prefork"),
        # It is not in a batch.
        refused_batch(0.5, task="work"),
        # It was not handed over.
        refused_batch(0.5, arrives=False),
        # The other was not lost yet.
        refused_batch(2.0),
        # It was received much later.
        refused_batch(0.5, received=6.8),
        # The other was run in time.
        refused_batch(0.5).note("a", "start", 1, 5.0, 1, message_id="other"),
    ],
)
def test_no_other_batch_releases_its_messages(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def waiting(released: float) -> Story:
    """Worker a releases a message that it has not started, and b does it."""
    story = Story(pool="threads").receive("a", 1, 1.0).hide("a", 1, released, 0)
    return story.receive("b", 2, 7.2).run("b", 2, 7.3, 8.0).delete("b", 2, 8.1)


def test_a_worker_whose_pool_is_broken_releases_waiting_messages() -> None:
    story = waiting(2.0).breaks("a").harm("broken", "a", 5.0).end("a", 5.0)
    assert story.verdict().redeliveries == ["it waited in a worker whose pool was broken"]
    paused = waiting(2.0).breaks("a").harm("broken", "a", 50.0).harm("pause", "a", 3.0, 45.0)
    assert paused.verdict().faults == []


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(waiting(2.0).breaks("a"), id="it was not found broken"),
        pytest.param(waiting(2.0).harm("broken", "b", 5.0), id="another worker was broken"),
        pytest.param(waiting(2.0).harm("broken", "a", 50.0), id="it continued for long"),
        pytest.param(expired().breaks("a"), id="its pool had taken it"),
    ],
)
def test_no_other_worker_releases_waiting_messages(story: Story) -> None:
    assert story.verdict().faults == UNEXPLAINED


def test_a_message_that_the_pool_could_not_take_is_left_to_its_timeout() -> None:
    story = Story(pool="threads").receive("a", 1, 1.0)
    story.receive("b", 2, 7.2).run("b", 2, 7.3, 8.0).delete("b", 2, 8.1)
    assert story.verdict().faults == UNEXPLAINED
    assert story.breaks("a").verdict().faults == UNEXPLAINED
    assert story.arrive("a", 1, 1.1).verdict().faults == []


def test_a_message_that_was_assigned_to_a_killed_pool_process_is_released() -> None:
    story = waiting(2.0).harm("pool-kill", "a", 1.5, pid=1)
    assert story.verdict().faults == UNEXPLAINED
    (redelivery,) = story.arrive("a", 1, 1.1).verdict().redeliveries
    assert redelivery == "it was assigned to a pool process that was killed"


def test_a_message_that_was_released_for_a_killed_process_is_released_once() -> None:
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5).harm("pool-kill", "a", 2.0, pid=1)
    story.hide("a", 1, 3.0, 0).receive("a", 2, 3.2).hide("a", 2, 4.0, 0)
    story.receive("b", 3, 4.2).run("b", 3, 4.3, 5.0).delete("b", 3, 5.1)
    assert story.verdict().faults == UNEXPLAINED_AGAIN


def begun_after_it_came_again(started: float) -> Story:
    """Worker a receives its message again. Only then does the first receive's task run and fail."""
    story = Story(task="flaky").terminates("a").receive("a", 1, 1.0).harm("pause", "a", 2.0, 9.0)
    story.receive("a", 2, 9.1).run("a", 1, started, 9.8, "fail").hide("a", 2, 9.9, 0)
    return story.receive("b", 3, 10.1).run("b", 3, 10.3, 11.0).delete("b", 3, 11.1)


def test_a_task_that_began_after_the_redelivery_was_not_stopped() -> None:
    verdict = begun_after_it_came_again(9.2).explained()
    assert verdict.redeliveries == ["its worker was stopped", "it failed by design"]


def test_a_task_that_began_after_the_expiry_was_not_stopped() -> None:
    assert begun_after_it_came_again(9.02).verdict().faults == []


def test_a_task_that_began_before_the_expiry_may_have_been_stopped() -> None:
    assert begun_after_it_came_again(1.5).verdict().faults == UNEXPLAINED_AGAIN
