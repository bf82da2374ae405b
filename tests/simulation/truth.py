"""What really happened to each message. Only the simulation can know that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.queue import SimulatedQueue


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(eq=False)
class Execution:
    """One run of a message's task. Times in seconds of the world."""

    message_id: str
    handle: str
    worker: str
    started_at: float
    ended_at: float | None = None


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
