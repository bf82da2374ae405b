"""Receivers that no journal mentions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet.profile import POLL, QueueProfile
from fleet.truth import Execution, Receive

if TYPE_CHECKING:
    from fleet.world import World


class BareWorker:
    """A worker with neither a heartbeat nor a journal. It runs one task at a time."""

    wid = None
    is_up = True

    def __init__(self, world: World) -> None:
        self.world = world
        self._is_busy = False

    @property
    def room(self) -> int:
        """How many more messages the worker accepts."""
        return 0 if self._is_busy else 1

    @property
    def is_calm(self) -> bool:
        """Whether it holds nothing, because no journal mentions the messages it holds."""
        return not self._is_busy

    def take(self, queue: QueueProfile, message: Mapping[str, Any], receive: Receive) -> None:
        """Run the message's task, then delete it."""
        self._is_busy = True
        execution = Execution(None, self.world.clock())
        receive.execution, receive.is_new = execution, True

        def finish() -> None:
            self._is_busy = False
            execution.ended_at, execution.succeeded = self.world.clock(), True
            self.world.sqs.delete_message(
                QueueUrl=self.world.urls[queue.name], ReceiptHandle=message["ReceiptHandle"]
            )

        self.world.clock.at(self.world.clock() + queue.run_time(self.world.random), finish)


class DeadPoll:
    """The open poll of a killed worker. SQS may put a message into it, which no one then has."""

    wid = None
    is_calm = True

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._ends_at = world.clock() + POLL

    @property
    def room(self) -> int:
        """How many more messages SQS puts into it."""
        return 1 if self._clock() < self._ends_at else 0

    def take(self, *_: object) -> None:
        """Swallow the message until its timeout ends."""
        self._ends_at = 0.0
