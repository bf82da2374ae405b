"""The worker reports when a queue's last open poll ends."""

from __future__ import annotations

from celery_sqs_heartbeat.link.polls import ReportedPolls

QUEUE = "https://sqs/queue"


def test_an_open_poll_may_receive_a_message_until_it_ends() -> None:
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
