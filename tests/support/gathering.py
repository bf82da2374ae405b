"""A task that runs with the requests of several messages at once, like those of celery-batches.

We use our own few lines because celery-batches does not work with the soak's version of Celery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, Task, signals
from celery.worker.request import create_request_cls
from kombu.utils.imports import symbol_by_name

#: Messages of a full batch.
FULL = 3
#: How long a batch that is not full waits for more, in seconds.
WAIT = 0.5


class Gathers(Task):
    """Gathers requests, and gives the pool one job for all of them.

    Attributes:
        work: Called in the pool with the id, the message and the arguments of each request.
    """

    abstract = True
    work: Callable[..., None]
    _waiting: tuple[Any, ...] = ()

    def Strategy(self, task: Task, app: Celery, consumer: Any) -> Callable[..., None]:
        self._pool = consumer.pool
        hostname, eventer = consumer.hostname, consumer.event_dispatcher
        request_class = create_request_cls(
            symbol_by_name(task.Request), task, self._pool, hostname, eventer, app=app
        )

        def gather(message: Any, body: Any, ack: Any, reject: Any, *_: Any, **__: Any) -> None:
            request = request_class(
                message,
                on_ack=ack,
                on_reject=reject,
                app=app,
                hostname=hostname,
                eventer=eventer,
                task=task,
                body=message.body,
                headers=message.headers,
                decoded=False,
                utc=True,
                connection_errors=consumer.connection_errors,
            )
            signals.task_received.send(sender=consumer, request=request)
            self._waiting += (request,)
            if len(self._waiting) >= FULL:
                self._flush_waiting()
            elif len(self._waiting) == 1:
                consumer.timer.call_after(WAIT, self._flush_waiting)

        return gather

    def _flush_waiting(self) -> None:
        waiting, self._waiting = self._waiting, ()
        if waiting:
            self.flush(waiting)

    def flush(self, requests: Any) -> Any:
        def acknowledge(result: Any) -> None:
            for request in requests:
                request.acknowledge()

        each = [
            (request.id, request.message.delivery_info["sqs_message"], *request.args)
            for request in requests
        ]
        return self._pool.apply_async(self.work, (each, None), callback=acknowledge)
