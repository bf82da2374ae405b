"""The polls that one process of a simulated worker sends to one queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from celery_sqs_heartbeat.transport.poll import Poll
from tests.simulation.polls import LONGEST_POLL, Deliver

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class Consumer:
    """The polls of one queue, until its process ends or loses the channel.

    Attributes:
        is_polling: Whether one is open.
    """

    def __init__(self, worker: SimulatedWorker, queue: SimulatedQueue) -> None:
        self._worker = worker
        self._world = worker.world
        self._process = worker.keeper
        self._life = worker.life
        self._url = queue.url
        self.is_polling = False
        self._make_last: Callable[[], None] | None = None
        self._waits = 0
        self._reads_until = 0.0

    @property
    def is_reading(self) -> bool:
        """Whether a worker that ends still waits for the open poll."""
        return self.is_polling and self._world.clock() < self._reads_until

    def poll(self, count: int) -> None:
        """Request messages, and book them when they arrive."""
        worker, world, url = self._worker, self._world, self._url
        self.is_polling = True
        sent_at, suspended = worker.now(), worker.suspended
        timeout = worker.terms.asked(url, url)
        worker.hurry(worker.terms.of(url, timeout).threshold)

        def answered(messages: list[dict[str, Any]], skipped: float) -> None:
            if self._life == worker.life:
                self.is_polling = False
                late(messages, skipped)

        def late(messages: list[dict[str, Any]], skipped: float) -> None:
            if self._life != worker.life:
                return
            for message in messages:
                if suspended != worker.suspended:
                    world.truth[message["MessageId"]].excuses.add("suspend")
            worker.receive_all(url, messages, timeout, sent_at + skipped)
            worker.go_on()

        def deliver(take: Deliver, messages: list[dict[str, Any]], skipped: float) -> None:
            # Not a poll that a lost channel abandoned: its connection was closed long before.
            if messages and self._life == worker.ended_life and take is answered:
                world.fail(f"{worker.name} ended without reading {len(messages)} messages")
            worker.when_awake(self._process, partial(take, messages, skipped))

        wait = self._waits = worker.terms.longest_wait(url, timeout, LONGEST_POLL)
        self._make_last = None
        if world.loses_poll():
            poll = Poll(
                queue="q", url=url, sent_at=sent_at, waits=wait, count=count, timeout=timeout
            )
            world.lose_poll(worker.name, poll, partial(deliver, late))
            if worker.gives_up_polls:
                give_up = partial(deliver, answered, [], 0.0)
                world.clock.at(world.clock() + poll.patience, give_up)
        else:
            deliver_answer = partial(deliver, answered)
            held_for = world.starting.left(worker.name)
            self._make_last = world.poll(url, count, wait, timeout, deliver_answer, held_for)

    def end(self) -> None:
        """Read the open poll for its last seconds. The worker continues after that."""
        if not self.is_polling or self._make_last is None:
            return
        self._world.disturb(self._worker.name, "shuts down during a poll")
        self._make_last()
        # Plus the time that the answer takes.
        wait = self._waits + 3 * self._world.profile.call_timeout
        self._reads_until = self._world.clock() + wait
        go_on = partial(self._worker.when_awake, self._process, self._worker.go_on)
        self._world.clock.at(self._reads_until, go_on)
