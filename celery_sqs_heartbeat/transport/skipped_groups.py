"""The message groups of one answer in which a message is left to SQS."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.group_order import GROUP_STOPPED
from celery_sqs_heartbeat.leases.message import group_of, sequence_number_of
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.answers import Message


class SkippedGroups:
    """Releases the messages of a group that come after one that is left to SQS.

    Only messages of FIFO queues have sequence numbers, so no others are affected. FIFO queues whose
    messages run side by side are treated alike, because the case is rare.
    """

    def __init__(self) -> None:
        self._groups: set[str | None] = set()
        self._behind: list[str] = []

    def cut(self, message: Message) -> None:
        """Note that a message is left to SQS."""
        if sequence_number_of(message) is not None:
            self._groups.add(group_of(message))

    def takes(self, message: Message) -> bool:
        """Return whether a message comes after one that is left to SQS, and will be released."""
        is_behind = sequence_number_of(message) is not None and group_of(message) in self._groups
        if is_behind:
            self._behind.append(str(message["ReceiptHandle"]))
        return is_behind

    def release(self, keeper: LinkedKeeper) -> None:
        """Release the messages that come after those left to SQS, the last one first."""
        for receipt_handle in reversed(self._behind):
            keeper.release(receipt_handle, cause=GROUP_STOPPED)
