"""If the worker does not read, the ends of leases and the events wait, but log lines do not."""

from __future__ import annotations

import threading

import pytest

from celery_sqs_heartbeat.link import outbox
from celery_sqs_heartbeat.link.outbox import Outbox
from tests.unit.link.pairs import Pair
from tests.unit.link.pairs import pair as pair

LINE = ("log", {"text": "a line"})


def test_a_message_is_sent_at_once(pair: Pair) -> None:
    Outbox(pair.wire).send(("over", 1, 1))
    assert pair.far.read() == [["over", 1, 1]]


def test_log_lines_are_left_out_while_the_worker_does_not_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_WAITING", 10)
    sent = Outbox(pair.wire)
    filling = len(pair.fill())
    for _ in range(30):
        sent.send(LINE)
    assert pair.wire.waiting == 10
    assert sent.take_left_out() == 0
    for number in range(20):
        sent.send(("over", number, 1))
        sent.send(("event", number, []))
        sent.send(("stats", {}))
        sent.send(LINE)
    assert pair.wire.waiting == 50
    read = pair.read_all()[filling:]
    assert [each for each in read if each[0] == "over"] == [["over", n, 1] for n in range(20)]
    assert [each for each in read if each[0] == "event"] == [["event", n, []] for n in range(20)]
    assert not [each for each in read if each[0] == "stats"]
    assert [sent.take_left_out(), sent.take_left_out()] == [41, 0]


def test_waiting_messages_are_sent_once_the_worker_reads_again(pair: Pair) -> None:
    sent = Outbox(pair.wire)
    filling = len(pair.fill())
    sent.send(("over", 1, 1))
    assert len(pair.far.read()) < filling
    sent.push()
    assert pair.read_all()[-1] == ["over", 1, 1]


def test_threads_do_not_mix_their_messages(pair: Pair) -> None:
    sent = Outbox(pair.wire)

    def say(name: int) -> None:
        for number in range(200):
            sent.send(("over", name, number))

    threads = [threading.Thread(target=say, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    read: list[list[object]] = []
    while any(thread.is_alive() for thread in threads):
        read += pair.far.read()
        sent.push()
    for thread in threads:
        thread.join()
    read += pair.read_all()
    for name in range(4):
        assert [each[2] for each in read if each[1] == name] == list(range(200))


def test_a_worker_that_is_gone_is_not_an_error(pair: Pair) -> None:
    pair.far.close()
    sent = Outbox(pair.wire)
    sent.send(("over", 1, 1))
    sent.push()
    assert pair.wire.is_broken
