"""What explains that a message which was acked inline is received again, and what does not."""

from __future__ import annotations

import math

import pytest

from tests.soak.story import Story


def undeleted() -> Story:
    """Worker a acks inline. It does the message, which b receives again after the timeout."""
    story = Story().receive("a", 1, 1.0).run("a", 1, 1.5, 2.0).acks_inline("a")
    return story.receive("b", 2, 7.2).run("b", 2, 7.5, 8.0).delete("b", 2, 8.1)


def failed() -> Story:
    """Worker a's inline delete failed."""
    return undeleted().delete("a", 1, 2.05, fails=True, inline=True)


@pytest.mark.parametrize(
    ("story", "cause"),
    [
        (failed(), "its inline delete failed"),
        (failed().delete("a", 1, 2.5, fails=True, inline=True), "its inline delete failed"),
        (undeleted().harm("kill", "a", 2.1), "its worker was killed as it acked it"),
    ],
)
def test_an_inline_delete_that_was_not_done_explains_a_duplicate(story: Story, cause: str) -> None:
    verdict = story.verdict()
    assert verdict.faults == []
    assert verdict.causes == [cause]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(undeleted(), id="it was not even tried"),
        pytest.param(undeleted().harm("kill", "a", 5.0), id="time enough, then it was killed"),
        pytest.param(
            undeleted().delete("a", 1, 2.05, fails=True), id="a keeper repeats its deletes"
        ),
        pytest.param(
            failed().hide("a", 1, 3.0, 0).receive("b", 2, 3.2), id="released after its ack"
        ),
    ],
)
def test_nothing_else_does(story: Story) -> None:
    assert "became visible after receive 1 without a cause" in story.verdict().faults


def test_a_worker_with_batched_acks_makes_no_inline_delete() -> None:
    story = failed()
    story.records.workers["a"].acks_inline = False
    assert "became visible after receive 1 without a cause" in story.verdict().faults


def test_a_worker_reads_nothing_while_it_waits_for_an_inline_delete() -> None:
    story = Story().acks_inline("a").receive_other("a", 0.5).receive("a", 1, 1.0)
    assert "became visible after receive 1 without a cause" in (
        story.receive("b", 2, 7.2).run("b", 2, 7.5, 8.0).delete("b", 2, 8.1).verdict().faults
    )
    call = story.delete("a", 1, 1.0, inline=True).records.calls[-1]
    call.entries[0].handle, call.ended = "o", 7.2
    verdict = story.verdict()
    assert verdict.faults == []
    assert verdict.redeliveries == [
        "it was not read in time: its worker waited for an inline delete"
    ]


def test_the_ack_of_a_killed_worker_waited_behind_a_delete_that_nobody_answered() -> None:
    story = Story().acks_inline("a").receive_other("a", 0.5).receive("a", 1, 1.0)
    story.run("a", 1, 1.5, 2.0).harm("kill", "a", 5.0).hide("a", 1, 5.05, 0)
    story.receive("b", 2, 5.1).run("b", 2, 5.3, 5.8).delete("b", 2, 5.9)
    assert "became visible after receive 1 without a cause" in story.verdict().faults
    call = story.delete("a", 1, 2.1, fails=True, fault="", inline=True).records.calls[-1]
    call.entries[0].handle, call.forwarded, call.done = "o", 2.1, math.inf
    verdict = story.verdict()
    assert verdict.faults == []
    assert verdict.redeliveries[0] == "its worker was killed"
