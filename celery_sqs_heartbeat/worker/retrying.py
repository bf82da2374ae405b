"""`self.retry()` on a FIFO queue in strict order: the message itself comes again.

Celery sends a new message, which goes to the end of its group, or of another: the order is lost. So
the task's message is released with the countdown instead. Its group waits for it meanwhile, and
`retries` counts its receives.

A message can't be changed: a retry with other arguments or options is sent as Celery does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from celery.app.task import Task
from celery.exceptions import Retry
from celery.utils.serialization import raise_with_context
from celery.utils.time import maybe_make_aware

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.lease import Lease

logger = get_logger(__name__)

#: What a request has, in whatever process runs its task, whose retries are releases.
_MARK = "sqs_heartbeat_releases_retries"


class ReleasedRetry(Retry):
    """What a task ends by whose message is released for its retry."""

    def delay(self) -> float:
        """Return how far away the retry is, in seconds."""
        when = self.when or 0
        if isinstance(when, datetime):
            return float((maybe_make_aware(when) - datetime.now(timezone.utc)).total_seconds())
        return float(when)


def mark_request(request: Any, lease: Lease) -> None:
    """Have the retries of a request's task be releases.

    Args:
        request: Celery's, in the worker.
        lease: On its message.
    """
    known = request.request_dict
    known[_MARK] = True
    known["retries"] = (known.get("retries") or 0) + lease.receive_count - 1


def release_retries() -> None:
    """Have `Task.retry` do so in this process, for the tasks of marked requests."""
    if not hasattr(Task.retry, "__wrapped__"):
        Task.retry = _releasing(Task.retry)


def _releasing(retry: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(retry)
    def retry_or_release(
        self: Any,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: Any = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        request = self.request
        is_ours = getattr(request, _MARK, False) and not (
            request.called_directly or request.is_eager
        )
        if not is_ours or args is not None or kwargs is not None or options:
            if is_ours:
                logger.warning(
                    "sqs-heartbeat: task %s[%s] is retried with other arguments or options: that "
                    "takes a new message, which goes to the end of its message group",
                    self.name,
                    request.id,
                )
            return retry(self, args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if max_retries is None:
            max_retries = self.max_retries
        else:
            self.override_max_retries = max_retries
        if max_retries is not None and request.retries + 1 > max_retries:
            if exc:
                raise_with_context(exc)
            raise self.MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}]: it has been retried {max_retries} times",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        if not eta and countdown is None:
            countdown = self.default_retry_delay
        released = ReleasedRetry(exc=exc, when=eta or countdown)
        if throw:
            raise released
        return released

    return retry_or_release
