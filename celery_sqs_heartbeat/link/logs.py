"""Sends the keeper's log lines to the worker, which writes them with its own logging."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.link.frames import Message

#: The lines of this logger and of those below it are sent.
ROOT = "celery_sqs_heartbeat"

_formatter = logging.Formatter()


def wanted_level() -> int:
    """Return the lowest level that this process's logging writes."""
    return logging.getLogger(ROOT).getEffectiveLevel()


class LinkHandler(logging.Handler):
    """Sends log records over the link.

    Args:
        send: Sends a message; may be called from any thread.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record as text."""
        try:
            line = {
                "name": record.name,
                "level": record.levelno,
                "text": record.getMessage(),
                "error": _formatter.formatException(record.exc_info) if record.exc_info else None,
                "created": record.created,
            }
        except Exception:
            self.handleError(record)
            return
        self._send(("log", line))


def emit(line: dict[str, Any]) -> None:
    """Write a line from the keeper to this process's log."""
    logger = logging.getLogger(line["name"])
    if not logger.isEnabledFor(line["level"]):
        return
    record = logger.makeRecord(
        line["name"], line["level"], "(keeper)", 0, line["text"], (), None, "keeper"
    )
    record.created, record.exc_text = line["created"], line["error"]
    record.msecs = (record.created % 1) * 1000
    logger.handle(record)
