"""The polls that one process of a simulated worker sends to one queue, without a keeper apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.leases.calls import least_beside
from celery_sqs_heartbeat.sqs.long_polls import MAX_POLLS
from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from tests.simulation.polls import WAIT_SECONDS, Deliver, LostPoll

if TYPE_CHECKING:
    from tests.simulation.within import Within


@dataclass(eq=False)
class _Open:
    """An open poll, and a function that makes it the last one; None if it will not be answered."""

    count: int
    waits: int
    make_last: Callable[[], None] | None = None


class Consumer:
    """The polls of one queue, until its process ends or loses the channel."""

    def __init__(self, keeping: Within, queue: SimulatedQueue) -> None:
        self._keeping = keeping
        self._worker = worker = keeping.worker
        self._world = worker.world
        self._process = worker.keeper
        self._life = worker.life
        self._url = queue.url
        self._open: list[_Open] = []
        self._is_full = False
        self._reads_until = 0.0

    @property
    def requested(self) -> int:
        """How many messages the open polls may return."""
        return sum(poll.count for poll in self._open)

    @property
    def is_reading(self) -> bool:
        """Whether a worker that ends still waits for the open polls."""
        return bool(self._open) and self._world.clock() < self._reads_until

    def wants_poll(self, left: int) -> bool:
        """Return whether to send a poll, as `Receiving` decides it.

        Args:
            left: For how many messages there is room, without those that open polls may return.
        """
        if not self._open:
            return left + self._keeping.requested > 0
        least = least_beside(self._world.profile.prefetch)
        return self._is_full and len(self._open) < MAX_POLLS and left >= least

    def poll(self, count: int) -> None:
        """Request messages, and book them when they arrive."""
        worker, world, url = self._worker, self._world, self._url
        is_beside = bool(self._open)
        sent_at, suspended = worker.now(), worker.suspended
        queue = worker.consumed(url)
        timeout = queue.timeout
        # A server that is stalled may answer after the last seconds for which the worker waits.
        held_for = world.starting.left(worker.name)
        worker.hurry(queue.terms.threshold)

        def answered(messages: list[dict[str, Any]], skipped: float) -> None:
            if self._life == worker.life:
                self._open.remove(opened)
                self._is_full = len(messages) >= count
                late(messages, skipped)

        def late(messages: list[dict[str, Any]], skipped: float) -> None:
            if self._life != worker.life:
                return
            for message in messages:
                if suspended != worker.suspended:
                    world.truth[message["MessageId"]].excuses.add("suspend")
            self._keeping.take(queue, messages, sent_at + skipped)

        def deliver(take: Deliver, messages: list[dict[str, Any]], skipped: float) -> None:
            # Not a poll that a lost channel abandoned: its connection was closed long before.
            is_last = self._life == worker.ended_life and take is answered
            if messages and is_last and not held_for:
                world.fail(f"{worker.name} ended without reading {len(messages)} messages")
            worker.when_awake(self._process, partial(take, messages, skipped))

        wait = queue.wait_of(is_beside=is_beside)
        opened = _Open(count, wait)
        self._open.append(opened)
        if is_beside:
            world.disturb(worker.name, "has several polls open")
        if world.loses_poll():
            poll = LostPoll(url=url, waits=wait, count=count, timeout=timeout)
            world.lose_poll(worker.name, poll, partial(deliver, late))
            if worker.gives_up_polls:
                give_up = partial(deliver, answered, [], 0.0)
                world.clock.at(world.clock() + poll.patience, give_up)
        else:
            deliver_answer = partial(deliver, answered)
            lasts = float(wait) if is_beside else WAIT_SECONDS
            opened.make_last = world.poll(
                url, count, wait, timeout, deliver_answer, held_for, lasts
            )

    def end(self) -> None:
        """Read the open polls for their last seconds. The worker continues after that."""
        last = [(poll.waits, poll.make_last) for poll in self._open if poll.make_last]
        if not last:
            return
        self._world.disturb(self._worker.name, "shuts down during a poll")
        for _, make_last in last:
            make_last()
        # Plus the time that the answer takes.
        wait = max(waits for waits, _ in last) + 3 * self._world.profile.call_timeout
        self._reads_until = self._world.clock() + wait
        go_on = partial(self._worker.when_awake, self._process, self._worker.go_on)
        self._world.clock.at(self._reads_until, go_on)
