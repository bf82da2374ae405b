"""What really happened to each message. Only the simulation can know that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.queue import SimulatedQueue

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Why a message of a queue whose calls hang may run again.
HANGING = "its queue hangs"
#: The cause of a receive whose answer has reached no process.
NOT_ARRIVED = "its answer did not arrive"
#: The cause of a receive whose lease was lost before its task started.
LOST = "lost before its start"
#: Causes that may make dead letters of messages that have never run: the documentation says so.
_KNOWN = frozenset({GROUP_STOPPED})
#: Causes that the death of a keeper may have, says the documentation: SQS put the message into an
#: open poll, or a release that SQS has not answered may end the lease.
_LOST_TO_DEATHS = (NOT_ARRIVED, ReceivedAs.RELEASED.value)


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(eq=False)
class Execution:
    """One run of a message's task."""

    message_id: str
    handle: str
    worker: str


@dataclass(eq=False, slots=True)
class Receive:
    """One receive of a message.

    Attributes:
        worker: Whose keeper has read its answer.
        cause: Why it leads to no execution, if it does not.
        is_guessed: Whether there may be a better cause.
        is_taken: Whether it was handed over to its worker.
        is_cold: Whether it was released after its worker had died or lost its connection.
    """

    worker: str = ""
    cause: str = ""
    is_guessed: bool = False
    is_run: bool = False
    is_taken: bool = False
    is_cold: bool = False


@dataclass(eq=False)
class MessageTruth:
    """What happened to one message.

    Attributes:
        excuses: Faults that may have cost its lease or made SQS deliver it twice.
        is_overtaken: A worker had received it again when an older call of that worker arrived.
        is_sent_again: Another message has taken its place.
        receives: By receipt handle.
    """

    message_id: str
    queue: SimulatedQueue
    is_poison: bool = False
    succeeded: bool = False
    is_deleted: bool = False
    is_overtaken: bool = False
    is_sent_again: bool = False
    receives: dict[str, Receive] = field(default_factory=dict)
    running: list[Execution] = field(default_factory=list)
    executions: int = 0
    excuses: set[str] = field(default_factory=set)

    @property
    def message(self) -> SimulatedMessage | None:
        """The message in its queue now, or None once it has left the queue."""
        return self.queue.messages.get(self.message_id)


@dataclass
class Tally:
    """Counts of one or many worlds. `worker_hours` are simulated ones.

    Attributes:
        causes: The causes of executions that overlap or repeat.
        disturbances: What happened to workers, tasks, calls and queues, by name.
        idle_receives: The causes of receives that led to no execution.
    """

    worker_hours: float = 0.0
    events: int = 0
    messages: int = 0
    executions: int = 0
    overlaps: int = 0
    repeats: int = 0
    visibility_calls: int = 0
    visibility_bound: float = 0.0
    causes: Counter[str] = field(default_factory=Counter)
    disturbances: Counter[str] = field(default_factory=Counter)
    idle_receives: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another world's counts."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)


class Receives:
    """Notes every receive: SQS counts it, so each one that leads to no execution needs a cause."""

    def __init__(self, world: World) -> None:
        self._world = world

    def note_answer(self, message: Mapping[str, Any]) -> None:
        """Note that SQS has returned a message."""
        truth = self._world.truth[message["MessageId"]]
        truth.receives[message["ReceiptHandle"]] = Receive(cause=NOT_ARRIVED)

    def note_arrival(self, message: Mapping[str, Any], worker: str, receipt: ReceivedAs) -> None:
        """Note what a keeper of a worker has taken a message for."""
        receive = self._world.truth[message["MessageId"]].receives[message["ReceiptHandle"]]
        receive.worker = worker
        receive.cause = "" if receipt is ReceivedAs.NEW else receipt.value

    def explain(self, message_id: str, worker: str, cause: str, *, is_guess: bool = False) -> None:
        """Note why what a worker has received of a message may lead to no execution.

        A receive keeps its first cause: what is said later is about a later receive.

        Args:
            is_guess: Whether a cause that is noted later is the better one.
        """
        for receive in self._world.truth[message_id].receives.values():
            if receive.worker == worker and (receive.is_guessed or not receive.cause):
                receive.cause, receive.is_guessed = cause, is_guess

    def check(self) -> None:
        """Check at the end that every receive has led to an execution, or has a cause."""
        for truth in self._world.truth.values():
            idle = Counter(each.cause for each in truth.receives.values() if not each.is_run)
            if idle[""]:
                self._world.fail(
                    f"11: {truth.message_id} was received {len(truth.receives)} times, and "
                    f"{idle['']} of them led to no execution, without a cause"
                )
            self._world.tally.idle_receives.update(idle)
            self._check_dead_letter(truth, idle)

    def _check_dead_letter(self, truth: MessageTruth, idle: Counter[str]) -> None:
        """Check that in a calm world no message is a dead letter because it was not executed."""
        world = self._world
        most = world.profile.max_receive_count or 0
        if not world.profile.is_calm or truth.message_id not in world.dead_letters.messages:
            return
        *_, last = truth.receives.values()
        if (
            truth.executions + sum(idle[each] for each in _LOST_TO_DEATHS) < most
            and not truth.is_poison
            and not idle.keys() & _KNOWN
            # A message of a FIFO queue can't be sent again behind the others of its group.
            and not (world.profile.is_fifo and last.is_cold and not last.is_run)
            # After 12 hours, SQS delivers a message again at each timeout while its task runs.
            and not truth.excuses & {HANGING, "capped"}
        ):
            causes = ", ".join(f"{count} x {cause}" for cause, count in idle.most_common())
            world.fail(
                f"11: {truth.message_id} is a dead letter after {truth.executions} executions: "
                f"{causes}"
            )
