"""Carries a keeper's calls to the simulated SQS, with the faults of its worker's network."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock
from fleet.profile import Trouble

#: The seconds after which a call without an answer is given up.
CALL_TIMEOUT = 5.0
#: The part of the visibility timeout that a slow call needs to arrive. That is too late.
SLOW_PART = 0.6
#: How SQS answers a call that it does not carry out, unless it throttles the call.
_ANSWERS: dict[Trouble | None, Outcome] = {
    Trouble.ERRORS: Outcome.UNSURE,
    Trouble.DENIED: Outcome.DENIED,
}
#: The time of a call, there and back: mu and sigma of a lognormal distribution of seconds.
_LATENCY = (-3.5, 0.4)


class Network:
    """The delays and losses between one worker and SQS.

    Args:
        is_stale: Returns whether a message was received again later, with another handle.

    Attributes:
        trouble: What currently disturbs its calls.
    """

    def __init__(
        self,
        clock: FakeClock,
        sqs: BotoSqs,
        generator: random.Random,
        is_stale: Callable[[Entry], bool],
    ) -> None:
        self._clock = clock
        self._sqs = sqs
        self._is_stale = is_stale
        self._random = generator
        self.trouble: Trouble | None = None

    def latency(self) -> float:
        """Return a random duration of a call, there and back."""
        return self._random.lognormvariate(*_LATENCY)

    def hinders(self, call: Call) -> bool:
        """Return whether that call would currently fail."""
        if self.trouble is Trouble.KILLED_AFTER_SUCCESS:
            return call.kind is CallKind.DELETE
        if self.trouble is Trouble.SLOW:
            # A release that comes late would take the message from its new owner.
            return all(entry.action is Action.EXTEND for entry in call.entries)
        if self.trouble is Trouble.DENIED:
            return call.kind is CallKind.CHANGE_VISIBILITY
        return self.trouble in (Trouble.LOST, Trouble.REFUSED, Trouble.ERRORS)

    def carry(self, call: Call, settle: ApplyResults) -> None:
        """Carry one call, and pass its outcomes to `settle`."""
        there = back = self.latency() / 2
        if self.hinders(call):
            if self.trouble is Trouble.LOST:
                self._answer(CALL_TIMEOUT, settle, [Outcome.UNKNOWN] * len(call.entries))
                return
            if self.trouble is not Trouble.SLOW:
                answer = _ANSWERS.get(self.trouble, Outcome.THROTTLED)
                self._answer(there + back, settle, [answer] * len(call.entries))
                return
            there = SLOW_PART * call.entries[0].lease.terms.visibility_timeout
        self._clock.at(self._clock() + there, lambda: self._arrive(call, back, settle))

    def _arrive(self, call: Call, back: float, settle: ApplyResults) -> None:
        """Let SQS answer. A stale handle can only delete.

        On a standard queue a stale handle could also take the message from its new owner. No
        journal could show that: in the journals of both owners all is well.
        """
        lost = [
            call.kind is CallKind.CHANGE_VISIBILITY and self._is_stale(entry)
            for entry in call.entries
        ]
        entries = [entry for entry, is_lost in zip(call.entries, lost, strict=True) if not is_lost]
        answers = iter(self._sqs.send(replace(call, entries=tuple(entries))) if entries else ())
        self._answer(back, settle, [Outcome.LOST if is_lost else next(answers) for is_lost in lost])

    def _answer(self, after: float, settle: ApplyResults, outcomes: Sequence[Outcome]) -> None:
        self._clock.at(self._clock() + after, partial(settle, outcomes))
