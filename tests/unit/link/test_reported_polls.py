"""When a queue's last open poll ends, as the keeper learns it from its worker."""

from __future__ import annotations

from celery_sqs_heartbeat.link.polls import ReportedPolls

QUEUE = "https://sqs/queue"


def test_a_poll_that_is_open_may_take_a_message_along_until_it_ends() -> None:
    now = 100.0
    polls = ReportedPolls(lambda: now)
    assert polls.left(QUEUE) == 0.0
    polls.note(QUEUE, 110.5)
    assert polls.left(QUEUE) == 10.5
    assert polls.left("https://sqs/another") == 0.0
    now = 111.0
    assert polls.left(QUEUE) == 0.0
    polls.note(QUEUE, 0.0)
    assert polls.left(QUEUE) == 0.0
