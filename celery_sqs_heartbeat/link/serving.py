"""The keeper's end of the link: passes the worker's messages to a `ThreadKeeper`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from celery_sqs_heartbeat.keeper.message_sender import MessageSender
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.messages import event as event_message
from celery_sqs_heartbeat.link.messages import read_lease, read_receive, read_terms
from celery_sqs_heartbeat.link.numbered_leases import NumberedLeases

logger = logging.getLogger(__name__)

#: Kinds of messages about leases.
_KINDS = frozenset({"received", "started", "done", "release", "send-again", "drop", "resume"})
#: How many messages are handled before the keeper may do anything else. Each takes about 50 us.
_BATCH = 200
#: Events that a worker always needs: they change the messages it holds, or call its handlers.
NEEDED = frozenset(
    {
        EventKind.LEASE_EXPIRED,
        EventKind.LEASE_LOST,
        EventKind.LEASE_CAPPED,
        EventKind.LEASE_CAP_NEAR,
        EventKind.MESSAGE_RELEASED,
        EventKind.MESSAGE_LAPSING,
    }
)


def is_about_leases(message: list[Any]) -> bool:
    """Return whether `KeeperEnd` handles a message."""
    return message[0] in _KINDS


class KeeperEnd:
    """Handles the worker's messages about leases.

    Args:
        keeper: The keeper that owns the leases.
        leases: The board of `keeper`.
        send: Sends the worker a message.
        sender: Sends messages to SQS again.
        wants_all: Whether the worker wants every event.
    """

    def __init__(
        self,
        keeper: ThreadKeeper,
        leases: NumberedLeases,
        send: Callable[[Message], None],
        sender: MessageSender,
        *,
        wants_all: bool,
    ) -> None:
        self._keeper = keeper
        self._leases = leases
        self._send = send
        self._sender = sender
        self._wants_all = wants_all

    def report(self, event: Event) -> None:
        """Report an event to the worker, if it needs it. An observer of the keeper."""
        if self._wants_all or event.kind in NEEDED:
            number = self._leases.number(event.receipt_handle)
            self._send(event_message(number or 0, event))

    def take_all(self, messages: Iterable[list[Any]]) -> None:
        """Handle messages about leases. The keeper looks for due calls only once per batch.

        Raises:
            BrokenLink: A message has an unknown kind, or the wrong fields.
        """
        waiting = iter(messages)
        while batch := list(islice(waiting, _BATCH)):
            with self._keeper.gathering():
                for message in batch:
                    if not self.take(message):
                        raise BrokenLink(f"the worker sent an unknown message: {message[0]!r}")

    def take(self, message: list[Any]) -> bool:
        """Handle a message. Return False if it is not about leases.

        Raises:
            BrokenLink: It has the wrong fields.
        """
        try:
            return self._take(message)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenLink(f"the worker sent an invalid message: {error}") from error

    def _take(self, message: list[Any]) -> bool:
        match message:
            case ["received", number, receives, place, receipt, receive, terms, is_certain]:
                self._receive(
                    number,
                    receives,
                    place,
                    ReceivedAs(receipt),
                    read_receive(receive),
                    read_terms(terms),
                    is_certain,
                )
            case ["started", number, receives, at, pid]:
                if self._by_handle(
                    number, receives, lambda handle: self._keeper.note_start(handle, at=at)
                ):
                    self._leases.pids[number] = pid
            case ["done", number, receives]:
                self._by_handle(number, receives, self._keeper.done)
            case ["release", number, receives, delay, cause]:
                self._by_handle(
                    number, receives, lambda handle: self._keeper.release(handle, delay, cause)
                )
            case ["send-again", number, receives, delay, cause, dict(content)]:
                self._by_handle(
                    number,
                    receives,
                    lambda handle: self._sender.send_again(handle, content, delay, cause),
                )
            case ["drop", number, receives, cause]:
                self._by_handle(
                    number, receives, lambda handle: self._keeper.let_expire(handle, cause)
                )
            case ["resume", number, receives, place, was_releasing, pid, *lease]:
                self._resume(number, receives, place, pid, read_lease(*lease), was_releasing)
            case _:
                return False
        return True

    def _receive(
        self,
        number: int,
        receives: int,
        place: int | None,
        receipt: ReceivedAs,
        receive: Receive,
        terms: LeaseTerms,
        is_certain: bool,
    ) -> None:
        if receipt is not ReceivedAs.LAPSED:
            self._end_before(number, receive.key)
            self._leases.expect(number, receives, place, receive.receipt_handle)
        self._keeper.take(receive, receipt, terms=terms, is_certain=is_certain)

    def _end_before(self, number: int, message: tuple[str, str]) -> None:
        """End a lease if the worker has meanwhile begun another lease on the same message.

        If an ack followed a release, this keeper may be deleting the message. The worker did not
        know that, and has it deleted under the new number.
        """
        lease = self._leases.under_another(number, message)
        if lease is not None and lease.goal is Goal.DELETE:
            self._keeper.let_expire(lease.receipt_handle)

    def _resume(
        self,
        number: int,
        receives: int,
        place: int | None,
        pid: int | None,
        lease: Lease,
        was_releasing: bool,
    ) -> None:
        self._leases.expect(number, receives, place, *lease.handles)
        if pid is not None:
            self._leases.pids[number] = pid
        self._keeper.resume(lease, was_releasing=was_releasing)

    def _by_handle(self, number: int, receives: int, act: Callable[[str], bool]) -> bool:
        lease = self._leases.lease(number)
        if lease is not None and act(lease.receipt_handle):
            return True
        # The lease has ended already: the worker must not wait for its end.
        self._send(("over", number, receives, False))
        return False
