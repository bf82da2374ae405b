"""`self.retry()` on a FIFO queue in strict order: SQS delivers the same message again.

Celery sends a new message, which goes to the end of another group, and the order is lost. So the
task's message is released with the countdown instead. Its group waits for it meanwhile, and
`retries` counts its receives.

A task may continue after `retry`: with `throw=False`, or when it catches the `Retry` itself. With
Celery, the new message would be sent by then. So the request is recorded too, and the message is
released however the task ends.

A message can't be changed. A retry with other arguments or options is sent as a new message, as
Celery does, but to the end of the message's own group.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from celery.app.task import Task
from celery.exceptions import Retry
from celery.utils.serialization import raise_with_context
from celery.utils.time import maybe_make_aware

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.current.current_message import ask_for_retry, current_message
from celery_sqs_heartbeat.leases.lease import Lease

logger = get_logger(__name__)

#: The attribute of a request whose retries are releases, in any process that runs its task. Its
#: value is the group of the message.
_MARK = "sqs_heartbeat_retries_in_group"
#: An attribute of our `Task.retry`. `functools.wraps` copies it to a function that wraps ours.
_OURS = "sqs_heartbeat_releases_retries"
#: Options that may send a retry to another queue.
_ELSEWHERE = ("queue", "exchange", "routing_key")


class ReleasedRetry(Retry):
    """Raised by a task whose message is released for its retry."""

    def delay(self) -> float:
        """Return the time until the retry, in seconds."""
        when = self.when or 0
        if isinstance(when, datetime):
            return float((maybe_make_aware(when) - datetime.now(timezone.utc)).total_seconds())
        return float(when)


def mark_request(request: Any, lease: Lease) -> None:
    """Turn the retries of a request's task into releases.

    Args:
        request: Celery's request, in the worker.
        lease: The lease on its message.
    """
    known = request.request_dict
    known[_MARK] = lease.group
    retries = known.get("retries")
    # A header may have any value.
    sent_with = retries if isinstance(retries, int) else 0
    known["retries"] = sent_with + lease.receive_count - 1


def release_retries() -> Callable[[], None]:
    """Make `Task.retry` release the message in this process, for tasks of marked requests.

    Return a function that undoes it, unless another package has wrapped our function meanwhile.
    Then ours stays. Without a marked request it only passes each call on.
    """
    replaced = vars(Task)["retry"]
    if not hasattr(Task.retry, _OURS):
        Task.retry = _releasing(Task.retry)
    ours = vars(Task)["retry"]

    def restore() -> None:
        if vars(Task)["retry"] is ours:
            Task.retry = replaced

    return restore


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
        group: str | None = getattr(request, _MARK, None)
        send = functools.partial(retry, self, args, kwargs, exc, throw, eta, countdown, max_retries)
        if group is None or request.called_directly or request.is_eager:
            return send(**options)
        if args is not None or kwargs is not None or options:
            _warn_of_new_message(self, "the retry has other arguments or options")
            return send(**_in_group(group, options))
        if max_retries is None:
            max_retries = self.max_retries
        else:
            self.override_max_retries = max_retries
        if max_retries is not None and request.retries + 1 > max_retries:
            if exc:
                raise_with_context(exc)
            raise self.MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}]: max_retries is {max_retries}, and each "
                f"receive of its message after the first counts: {request.retries} so far",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        if not eta and countdown is None:
            countdown = self.default_retry_delay
        released = ReleasedRetry(exc=exc, when=eta or countdown)
        is_noted = ask_for_retry(current_message()["ReceiptHandle"], _finite(released.delay()))
        if throw:
            raise released
        if not is_noted:
            _warn_of_new_message(self, "its worker can't record a retry of a task that continues")
            return send(**_in_group(group, options))
        return released

    setattr(retry_or_release, _OURS, True)
    return retry_or_release


def _in_group(group: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a retry that is sent, with the group of the original message."""
    if any(options.get(name) for name in _ELSEWHERE):
        return options
    return {"MessageGroupId": group, **options}


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise ValueError(
            f"the countdown of a retry is {seconds!r}: must be a finite number of seconds"
        )
    return seconds


def _warn_of_new_message(task: Any, why: str) -> None:
    logger.warning(
        "sqs-heartbeat: the retry of task %s[%s] is sent as a new message, which goes to the end "
        "of its message group: %s",
        task.name,
        task.request.id,
        why,
    )
