"""A keeper as a worker's `Intake` calls it. The world sees what the Intake does with messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.leases.events import ARRIVED_LATE
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.receiving.intake import NOT_DELIVERED
from tests.simulation.rules import check_belief

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


class WatchedKeeper:
    """Passes all calls on to the keeper of one process, and checks and notes some of them."""

    def __init__(self, worker: SimulatedWorker) -> None:
        self._worker = worker
        self._world = worker.world
        self._keeper = worker.keeper
        self._leased: list[Lease] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Gather, and note then when the keeper's process learns of the receives."""
        with self._keeper.gathering():
            yield
        for lease in self._leased:
            self._worker.keeping.note_receive(lease)
        self._leased.clear()

    def receive(self, queue_url: str, message: Mapping[str, Any], **others: Any) -> ReceivedAs:
        """Receive a message, and check what the keeper believes of it."""
        world, worker = self._world, self._worker
        world.received(message)
        receipt = self._keeper.receive(queue_url, message, **others)
        world.log(worker.name, f"receives {receipt.value}", message["MessageId"])
        if lease := self._keeper.find(message["ReceiptHandle"]):
            check_belief(lease, world.truth[lease.message_id], worker.suspended)
            self._leased.append(lease)
        world.note_refused(worker.keeping.board)
        return receipt

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Release a message, and note whether it is one of a last poll."""
        if self._worker.is_stopping and cause == NOT_DELIVERED:
            self._world.disturb(self._worker.name, "last poll brings a message")
        return self._keeper.release(receipt_handle, delay, cause)

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending a message, and note whether it came too late."""
        if cause == ARRIVED_LATE:
            self._world.disturb(self._worker.name, "drops a message that no extension confirmed")
        return self._keeper.let_expire(receipt_handle, cause)
