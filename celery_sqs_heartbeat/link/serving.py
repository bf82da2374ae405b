"""The keeper's end of the link: receives for the worker, and does what the worker says.

Messages name a lease by its first receipt handle, which it keeps when it gets others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.current.table import LeaseBoard
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import GOING_BACK, LOSSES, WORKER_DIED, Event, EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.link.deliveries import Outlet
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.messages import event as event_message
from celery_sqs_heartbeat.link.messages import lease_fields, read_lease, read_queue
from celery_sqs_heartbeat.link.watching import WorkerProcesses
from celery_sqs_heartbeat.receiving.reception import Reception

logger = logging.getLogger(__name__)

#: How often a keeper writes a tick, in seconds.
TICK_SECONDS = 0.1
#: Kinds of messages about leases.
_KINDS = frozenset({"started", "done", "release", "drop", "finished", "unanswered", "resume"})
#: Events that a worker always needs: they change the messages it holds, or call its handlers.
NEEDED = frozenset({*LOSSES, *GOING_BACK, EventKind.LEASE_CAP_NEAR})


@dataclass(eq=False, repr=False)
class LinkedLeases:
    """Hands messages over to the worker, and reports what happens to their leases. A board.

    Attributes:
        board: The board in shared memory that the worker and its tasks read.
        outlet: Takes the messages.
        send: Sends the worker a message over the link.
        pids: By the name of a lease: the process that runs its task.
    """

    board: LeaseBoard
    outlet: Outlet
    send: Callable[[Message], object]
    pids: dict[str, int] = field(default_factory=dict, init=False)
    #: By name: the latest receipt handle of each lease.
    _handles: dict[str, str] = field(default_factory=dict, init=False)

    def deliver(self, channel: int, messages: list[Arrived]) -> int:
        """Hand messages over. Return how many of them have ended by now, and were not."""
        live = [each for each in messages if each.lease.handles[0] in self._handles]
        headed: list[tuple[Message, Mapping[str, Any]]] = [
            ((channel, each.queue, *lease_fields(each.lease)), each.message) for each in live
        ]
        if headed and not self.outlet.send(headed):
            self.keep(live)
        return len(messages) - len(live)

    def keep(self, messages: list[Arrived]) -> None:
        """Have the worker know the handles of messages that would be lost with this process."""
        for each in messages:
            if each.lease.handles[0] in self._handles:
                self.send(("kept", lease_fields(each.lease)))

    def expect(self, lease: Lease) -> None:
        """Note a lease of an earlier keeper, which the worker knows."""
        self._handles[lease.handles[0]] = lease.receipt_handle

    def show(self, lease: Lease) -> None:
        """Note a lease that is new or has changed. Report another receive of its message."""
        name, handle = lease.handles[0], lease.receipt_handle
        known, self._handles[name] = self._handles.get(name), handle
        if known not in (None, handle):
            self.send(("kept", lease_fields(lease)))
        self.board.show(lease)
        if known is None:
            # A keeper receives once it has the leases of the last one.
            self.board.note_all_shown()

    def remove(self, lease: Lease) -> None:
        """Note that the book has forgotten a lease, and report it to the worker."""
        self.board.remove(lease)
        name = lease.handles[0]
        self._handles.pop(name, None)
        self.pids.pop(name, None)
        self.send(("over", name))


def is_about_leases(message: list[Any]) -> bool:
    """Return whether a message is about leases, and not about anything else."""
    return message[0] in _KINDS


@dataclass(eq=False, repr=False)
class KeeperEnd:
    """Handles the worker's messages about leases, and about what to receive.

    Attributes:
        keeper: The keeper that owns the leases.
        leases: The board of `keeper`.
        send: Sends the worker a message.
        reception: Receives for the worker.
        wants_all: Whether the worker wants every event.
    """

    keeper: ThreadKeeper
    leases: LinkedLeases
    send: Callable[[Message], None]
    reception: Reception
    wants_all: bool

    def report(self, event: Event) -> None:
        """Report an event to the worker, if it needs it. An observer of the keeper."""
        if self.wants_all or event.kind in NEEDED:
            self.send(event_message(event))
        self.reception.take_turns()

    def take(self, message: list[Any]) -> bool:
        """Handle a message. Return False if it is about neither.

        Raises:
            BrokenLink: It has the wrong fields.
        """
        try:
            return self._take(message)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenLink(f"the worker sent an invalid message: {error}") from error

    def held(self) -> list[Lease]:
        """Return the leases on messages that the worker has neither acked nor released."""
        return [lease for lease in self.keeper.leases() if lease.goal is Goal.HOLD]

    def release_all_held(self, processes: WorkerProcesses) -> None:
        """Release a dead worker's messages, each as soon as no process can still run its task.

        Polls that are still open are read to their end, and what they bring is released. So a
        message is released at once, unless another receive could make it a dead letter.
        """
        held = self.held()
        logger.warning(
            "sqs-heartbeat: the worker is gone: releasing %s that it held",
            counted(len(held), "message"),
        )
        processes.kill_pool()
        while held:
            for lease in held:
                if not processes.may_run(self.leases.pids.get(lease.handles[0])):
                    self.reception.release(lease.receipt_handle, 0, WORKER_DIED)
            held = self.held()
            if held:
                time.sleep(TICK_SECONDS)

    def _take(self, message: list[Any]) -> bool:
        match message:
            case ["started", name, at, pid]:
                if self._note(name, self.keeper.note_start(name, at=at)):
                    self.leases.pids[name] = pid
            case ["done", name]:
                self._note(name, self.keeper.done(name))
            case ["release", name, delay, cause, *content]:
                self._note(name, self.reception.release(name, delay, cause, *content))
            case ["drop", name, cause]:
                self._note(name, self.keeper.let_expire(name, cause))
            case ["finished", list(keys)]:
                self.keeper.remember(finished=[(url, message_id) for url, message_id in keys])
            case ["unanswered", list(releases)]:
                self.keeper.remember(
                    releases=[((url, name), *release) for (url, name), release in releases]
                )
            case ["resume", was_releasing, pid, goal, status, list(fields)]:
                lease = read_lease(fields)
                lease.goal, lease.status = Goal(goal), LeaseStatus(status)
                self.leases.expect(lease)
                if pid is not None:
                    self.leases.pids[lease.handles[0]] = pid
                self.keeper.resume(lease, was_releasing=was_releasing)
            case ["consume", int(channel), list(queues)]:
                self.reception.consume(channel, map(read_queue, queues))
            case ["cancel", int(channel), str(queue)]:
                self.reception.cancel(channel, queue)
            case ["close", int(channel)]:
                self.reception.close(channel)
            case ["end"]:
                self.reception.end()
            case _:
                return False
        return True

    def _note(self, name: str, is_known: bool) -> bool:
        if not is_known:
            # The lease has ended already: the worker must not wait for its end.
            self.send(("over", name))
        return is_known
