"""A keeper's log lines appear in the worker's log and follow its configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from celery_sqs_heartbeat.link.frames import LineReader, Message
from celery_sqs_heartbeat.link.messages import ROOT, LinkHandler, write_line
from tests.unit.link.pairs import pack

NAME = f"{ROOT}.keeper.somewhere"


class KeepersLog:
    """A keeper's logging, and the messages it has sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.logger = logging.Logger(NAME)
        self.logger.addHandler(LinkHandler(self.sent.append))

    def lines(self) -> list[dict[str, Any]]:
        read = LineReader().feed(pack(self.sent))
        assert {kind for kind, _ in read} <= {"log"}
        return [line for _, line in read]


@pytest.fixture
def keepers() -> KeepersLog:
    return KeepersLog()


@pytest.fixture
def workers() -> Iterator[logging.Logger]:
    """The worker's logger of the same name, at its default level."""
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)
    logging.getLogger(ROOT).setLevel(logging.NOTSET)


def test_a_line_has_its_level_text_and_time(
    keepers: KeepersLog, caplog: pytest.LogCaptureFixture, workers: logging.Logger
) -> None:
    keepers.logger.warning("sqs-heartbeat: %d of %s", 3, "four")
    (line,) = keepers.lines()
    write_line(line)
    (record,) = caplog.records
    assert (record.name, record.levelno) == (NAME, logging.WARNING)
    assert record.getMessage() == "sqs-heartbeat: 3 of four"
    assert record.created == line["created"]
    assert record.msecs == pytest.approx(record.created % 1 * 1000)


def test_a_percent_sign_in_a_line_is_not_a_format(
    keepers: KeepersLog, caplog: pytest.LogCaptureFixture
) -> None:
    keepers.logger.error("a queue named %s", "100%s")
    write_line(*keepers.lines())
    assert caplog.messages == ["a queue named 100%s"]


def test_an_error_comes_with_its_traceback(
    keepers: KeepersLog, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        keepers.logger.exception("it failed")
    write_line(*keepers.lines())
    assert "Traceback" in caplog.text
    assert "ZeroDivisionError: by nothing" in caplog.text


def test_the_workers_own_levels_decide(
    keepers: KeepersLog, caplog: pytest.LogCaptureFixture, workers: logging.Logger
) -> None:
    keepers.logger.info("of little interest")
    (line,) = keepers.lines()
    workers.setLevel(logging.WARNING)
    write_line(line)
    assert caplog.messages == []
    workers.setLevel(logging.INFO)
    write_line(line)
    assert caplog.messages == ["of little interest"]


def test_the_workers_own_handlers_and_filters_write_it(
    keepers: KeepersLog, workers: logging.Logger
) -> None:
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(lambda record: "secret" not in record.getMessage())
    workers.addHandler(handler)
    try:
        keepers.logger.error("a secret")
        keepers.logger.error("no such thing")
        for line in keepers.lines():
            write_line(line)
    finally:
        workers.removeHandler(handler)
    assert written == ["no such thing"]


def test_a_line_that_cannot_be_formatted_raises_nothing(
    keepers: KeepersLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    keepers.logger.error("%d", "no number")
    assert keepers.sent == []
    assert "no number" in capsys.readouterr().err


def test_a_line_may_hold_any_text(keepers: KeepersLog) -> None:
    text = "\ud800 ü 💥 \0"
    keepers.logger.error(text)
    (line,) = keepers.lines()
    assert line["text"] == text
