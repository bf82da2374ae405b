"""Keeps Celery from logging `ReleaseMessage` as an error with a traceback, as it does any `Reject`.

If the worker has a lease on the message, it logs the delay of the release (`transport`). In other
processes and in other workers, one line says why the delay has no effect.
"""

from __future__ import annotations

import logging

from celery import current_task

from celery_sqs_heartbeat.current.claim import current_message
from celery_sqs_heartbeat.current.release_message import ReleaseMessage
from celery_sqs_heartbeat.current.sharing import shared_table
from celery_sqs_heartbeat.errors import NoLease

#: The logger that reports how tasks end.
_TRACE = "celery.app.trace"


def log_releases() -> None:
    """Log a task that releases its message in one line, in this process and those it forks."""
    logger = logging.getLogger(_TRACE)
    if _without_traceback not in logger.filters:
        logger.addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Remove the traceback of a release from a record; return whether to log the record."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, ReleaseMessage):
        return True
    if (why := _why_without_effect()) is None:
        return False
    record.exc_info, record.exc_text = None, None
    record.msg = (
        "sqs-heartbeat: task %(name)s[%(id)s] raised ReleaseMessage, whose delay has no effect "
        f"here: {why.replace('%', '%%')}"
    )
    return True


def _why_without_effect() -> str | None:
    """Return why we do not release the message of the running task, or None if we do."""
    if current_task and current_task.request.is_eager:
        return "the task was called eagerly"
    try:
        current_message()
        shared_table()
    except NoLease as none:
        return str(none.args[0])
    return None
