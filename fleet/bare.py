"""A worker that no journal mentions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet.profile import QueueProfile
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
        # After a kill, no journal could tell these receives from those of the killed worker.
        return 0 if self._is_busy or self.world.clock() < self.world.unheard_until else 1

    @property
    def is_calm(self) -> bool:
        """Whether it holds nothing, because no journal mentions the messages it holds."""
        return not self._is_busy

    def take(self, queue: QueueProfile, message: Mapping[str, Any], receive: Receive) -> None:
        """Run the message's task, then delete it."""
        self._is_busy, self.world.bare_at = True, self.world.clock()
        execution = Execution(None, self.world.clock())
        receive.execution, receive.is_new, receive.mark = execution, True, "no-heartbeat"

        def finish() -> None:
            self._is_busy = False
            execution.ended_at, execution.succeeded = self.world.clock(), True
            self.world.sqs.delete_message(
                QueueUrl=self.world.urls[queue.name], ReceiptHandle=message["ReceiptHandle"]
            )

        self.world.clock.at(self.world.clock() + queue.run_time(self.world.random), finish)
