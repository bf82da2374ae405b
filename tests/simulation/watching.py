"""A keeper as an `Intake` calls it. The world sees what the Intake does with messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import ARRIVED_LATE, NOT_DELIVERED
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.simulation.rules import check_belief
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class WatchedKeeper:
    """Passes all calls on to a keeper, and checks and notes some of them.

    Args:
        board: What the keeper believes.
        is_ending: Returns whether nothing more must be received.
    """

    def __init__(
        self,
        worker: SimulatedWorker,
        keeper: ThreadKeeper,
        board: Board,
        is_ending: Callable[[], bool],
    ) -> None:
        self._worker = worker
        self._world = worker.world
        self._keeper = keeper
        self._board = board
        self._is_ending = is_ending
        # Called most often.
        self.find, self.now = keeper.find, keeper.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)

    def receive(self, queue_url: str, message: Mapping[str, Any], **others: Any) -> ReceivedAs:
        """Receive a message, and check what the keeper believes of it."""
        world, worker = self._world, self._worker
        world.received(message)
        receipt = self._keeper.receive(queue_url, message, **others)
        world.receives.note_arrival(message, worker.name, receipt)
        world.log(worker.name, f"receives {receipt.value}", message["MessageId"])
        if lease := self._keeper.find(message["ReceiptHandle"]):
            check_belief(lease, world.truth[lease.message_id], worker.suspended)
        world.note_refused(self._board)
        return receipt

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Release a message, and note whether it is one of a last poll."""
        if self._is_ending() and cause == NOT_DELIVERED:
            self._world.disturb(self._worker.name, "last poll brings a message")
        return self._keeper.release(receipt_handle, delay, cause)

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending a message, and note whether it came too late."""
        if cause == ARRIVED_LATE:
            self._world.disturb(self._worker.name, "drops a message that no extension confirmed")
        return self._keeper.let_expire(receipt_handle, cause)
