"""Celery signals that the worker's main process sends when a lease ends badly.

    from celery_sqs_heartbeat.signals import lease_lost

    @lease_lost.connect
    def page(sender, message_id, task, task_id, queue, cause, held_for, **kwargs): ...

Handlers run one after the other on a separate thread. A slow handler delays the next
signals and the action of `sqs_heartbeat_on_lost`, but no extension. Both signals have these
arguments:

- `sender`: the task's class instance, or None if the task is unknown here;
- `message_id`, `queue` (its URL), `task` and `task_id` (None if the message has none);
- `cause`: `"expired"` (our clock passed the expiry with no confirmation: the message may
  still be ours) or `"lost"` (SQS says that the receipt handle is no longer ours). For
  `lease_capped` it is `"capped"` (`max_lease` or SQS's 12 hours);
- `held_for`: seconds since the message was received.
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

_ARGUMENTS = {"message_id", "queue", "task", "task_id", "cause", "held_for"}

#: A message's lease has expired, or SQS says that it is lost.
lease_lost = Signal(name="lease_lost", providing_args=_ARGUMENTS)

#: A message's lease has reached `max_lease` or SQS's 12 hours and is no longer extended.
lease_capped = Signal(name="lease_capped", providing_args=_ARGUMENTS)
