"""Tasks whose end is never reported, and the worker's net that gives up their messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.orphaned_messages import OrphanedMessages

if TYPE_CHECKING:
    from tests.simulation.world import World

#: In how many worlds the ends of tasks are swallowed, and how often in those worlds.
WORLDS = 0.3
RATE = 0.03


class Swallowing:
    """Whether the ends of tasks are swallowed in a world, and whether its pools have processes.

    It has its own random generator, so the other worlds stay unchanged.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._random = random.Random(f"lost ends of {kind} {seed}")
        self._rate = RATE if self._random.random() < WORLDS else 0.0
        self.may_run_on = self._random.random() < 0.5

    def draw(self) -> bool:
        """Return whether the end of a task is swallowed."""
        return bool(self._rate) and self._random.random() < self._rate


class Request:
    """Stands for Celery's request and the pool's job, which ack or release a message."""


class Net:
    """The real net over a simulated worker's keeper, with its requests and its channel."""

    def __init__(self, world: World, keeper: LinkedKeeper) -> None:
        self._world = world
        self._keeper = keeper
        self._requests: dict[str, Request] = {}
        self._unsettled = OrphanedMessages(keeper)
        may_run_on = world.swallowing.may_run_on
        self._unsettled.attach(forget=lambda request: None, may_run_on=may_run_on)
        self.look = self._unsettled.look
        self.close = self._unsettled.close

    def begin(
        self, handle: str, free: Callable[[], object], takes_slot: Callable[[], bool]
    ) -> None:
        """Note that a message's task begins.

        Args:
            free: Frees the message's prefetch slot.
            takes_slot: Returns whether it has one.
        """
        request = self._requests[handle] = Request()
        lease = self._keeper.find(handle)
        if lease is None:
            return

        def reject(tag: str, requeue: bool) -> None:
            self._keeper.release(tag, self._world.release_delay())
            free()

        channel = SimpleNamespace(
            basic_reject=reject,
            takes_slot=lambda tag: takes_slot(),
            qos=SimpleNamespace(ack=lambda tag: free()),
        )
        message = SimpleNamespace(delivery_tag=handle, channel=channel)
        self._unsettled.watch(request, lease, message)

    def end(self, handle: str) -> None:
        """Note that the task has ended. Its request goes, even if the message is not settled."""
        del self._requests[handle]
