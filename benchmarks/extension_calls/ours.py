"""Ours: the keeper's engine with its book of leases. Its calls go to the queue of the trace."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.extension_calls.queue import Held, Queue
from benchmarks.extension_calls.ways import Extending, Way
from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.lease_engine import LeaseEngine
from celery_sqs_heartbeat.leases.events import Call, CallKind, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs

_URL = "https://sqs/1/q"


def ours(threshold: float | None = None) -> Way:
    """Return our way, with the default threshold or another one, in seconds."""

    def longest(visibility_timeout: int) -> float:
        return visibility_timeout - LeaseTerms.of(visibility_timeout, threshold).threshold

    name = "this package" if threshold is None else f"this package, `threshold={threshold:g}`"
    return Way(name, longest, lambda queue: _Ours(queue, threshold))


class _Ours(Extending):
    """Calls the engine's step when it is due and when it asks to be woken, as its thread does."""

    def __init__(self, queue: Queue, threshold: float | None) -> None:
        self._queue, self._clock = queue, queue.clock
        self._terms = LeaseTerms.of(queue.visibility_timeout, threshold)
        self._held: dict[str, Held] = {}
        self._turn = 0
        self._engine = LeaseEngine(
            BotoSqs(None),
            interval=Settings(rules=Rules(threshold=threshold)).longest_sleep(),
            clock=self._clock,
            jitter=lambda: 0.5,
            observers=[],
            dispatcher=_Carrier(queue, self._held),
        )
        # In place of the thread.
        self._engine._wakeup.set = self._wake
        self._wake()

    def received(self, message: Held) -> None:
        """Begin a lease."""
        handle = str(message.number)
        self._held[handle] = message
        receive = Receive(
            queue_url=_URL,
            message_id=handle,
            receipt_handle=handle,
            receive_count=1,
            hidden_for=self._queue.visibility_timeout,
            sent_at=message.arrival.polled_at,
            arrived_at=self._clock(),
        )
        self._engine.change(lambda book, now: book.receive(receive, terms=self._terms))

    def ended(self, message: Held) -> None:
        """Delete it."""
        self._engine.change(lambda book, now: book.done(str(message.number), now))

    def _wake(self) -> None:
        self._plan(self._clock())

    def _step(self, turn: int) -> None:
        if turn == self._turn:
            self._plan(self._engine.step())

    def _plan(self, time: float) -> None:
        self._turn += 1
        turn = self._turn
        self._clock.at(time, lambda: self._step(turn))


@dataclass(frozen=True)
class _Carrier:
    """Takes the keeper's calls to the queue. Deletes are confirmed and not counted."""

    queue: Queue
    held: dict[str, Held]

    def dispatch(self, call: Call, apply_results: ApplyResults) -> None:
        """Send the call."""
        outcomes = [Outcome.DONE] * len(call.entries)
        messages = [self.held[entry.receipt_handle] for entry in call.entries]
        if call.kind is CallKind.CHANGE_VISIBILITY:
            timeout = call.entries[0].timeout
            self.queue.extend(messages, timeout, lambda: apply_results(outcomes))
        else:
            for message in messages:
                del self.held[str(message.number)]
            self.queue.clock.at(self.queue.clock(), lambda: apply_results(outcomes))

    def give_up(self, call: Call) -> bool:
        """Refuse: every call is answered in time.

        Raises:
            ValueError: The keeper gave up a call.
        """
        raise ValueError(f"given up before its answer: {call}")

    def close(self) -> None:
        """Do nothing."""
