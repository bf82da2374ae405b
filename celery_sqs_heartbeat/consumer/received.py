"""A message that a plain consumer holds: its content, and the block that processes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.errors import AlreadyHeld
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.message import receive_count_of
from celery_sqs_heartbeat.leases.policy import is_lost

logger = get_logger(__name__)


class Message:
    """A received message with a lease, to be processed in a `with` or `async with` block.

    At the end of the block the message is deleted. If the block raises, the error is logged and
    goes no further, and the message is released: SQS delivers it again. What is no `Exception`,
    such as `KeyboardInterrupt`, leaves the block. A message whose block never begins stays leased
    until the keeper closes.

    Attributes:
        queue_url: Its queue.
        message_id: SQS's name for it, the same at each receive.
        body: What its sender sent.
        attributes: SQS's own, such as `SentTimestamp` and `MessageGroupId`, as text.
        message_attributes: Its sender's, as boto3 returns them.
        receive_count: How often SQS has delivered it, this time included.
        raw: All that boto3 returned.
        is_running: Whether its block has begun.
    """

    def __init__(
        self,
        queue_url: str,
        raw: Mapping[str, Any],
        *,
        keeper: ThreadKeeper,
        delay_of: Callable[[int], float],
        on_end: Callable[[Message], None],
    ) -> None:
        self._keeper = keeper
        self._delay_of = delay_of
        self._on_end = on_end
        self._is_settled = False
        self._handle = str(raw["ReceiptHandle"])
        self.is_running = False
        self.raw = raw
        self.queue_url = queue_url
        self.message_id = str(raw["MessageId"])
        self.body: str = raw.get("Body", "")
        self.attributes: Mapping[str, str] = raw.get("Attributes") or {}
        self.message_attributes: Mapping[str, Any] = raw.get("MessageAttributes") or {}
        self.receive_count = receive_count_of(raw)

    def __repr__(self) -> str:
        return f"<Message {self.message_id} of {self.queue_url}, receive {self.receive_count}>"

    def owns(self) -> bool:
        """Return whether the message is still this program's, as far as is known.

        A long task asks before it does what must not be done twice.
        """
        return self._keeper.owns(self._handle)

    @property
    def is_ready(self) -> bool:
        """Whether its block may begin: nothing of its message group must be processed before it."""
        return not self._keeper.waits_behind(self._handle)

    @property
    def is_held(self) -> bool:
        """Whether it may still be processed. False once it is settled, or no longer ours."""
        lease = self._keeper.find(self._handle)
        return (
            lease is not None and lease.goal is Goal.HOLD and not is_lost(lease, self._keeper.now())
        )

    def release(self, delay: float = 0, cause: str = "") -> None:
        """Make the message visible again after `delay` seconds, instead of deleting it.

        Does nothing once the message is settled. `cause` says why in a word or two, for the log.
        """
        self._settle(lambda: self._keeper.release(self._handle, delay, cause))

    def delete(self) -> None:
        """Delete the message before its block ends. Does nothing once it is settled."""
        self._settle(lambda: self._keeper.done(self._handle))

    def _settle(self, settle: Callable[[], object]) -> None:
        if not self._is_settled:
            self._is_settled = True
            try:
                settle()
            finally:
                self._on_end(self)

    def __enter__(self) -> Message:
        """Begin to process it.

        Raises:
            AlreadyHeld: It is no longer this program's, and must not be processed.
        """
        if not self.is_held:
            raise AlreadyHeld(
                f"message {self.message_id} of {self.queue_url} is no longer held here: skip it"
            )
        self.is_running = True
        self._keeper.note_start(self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self.delete()
            return False
        if not isinstance(error, Exception):
            # The program ends, or its task was cancelled: the message has not failed.
            self.release(cause="interrupted")
            return False
        logger.error(
            "sqs-heartbeat: message %s of %s failed at its receive %d",
            self.message_id,
            self.queue_url,
            self.receive_count,
            exc_info=error,
        )
        delay = 0.0
        try:
            delay = self._delay_of(self.receive_count)
        finally:
            self.release(delay, "failed")
        return True

    async def __aenter__(self) -> Message:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self.__exit__(kind, error, traceback)
