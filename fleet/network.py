"""Carries a keeper's calls to the simulated SQS, in the weather of their worker."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from celery_sqs_heartbeat.keeper.dispatch import Settle, SqsCalls
from celery_sqs_heartbeat.leases.calls import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.testing import FakeClock
from fleet.profile import Trouble

#: After so many seconds without an answer a call is given up.
CALL_TIMEOUT = 5.0
#: Of the visibility timeout, which a slow call takes to arrive: it is too late then.
SLOW_PART = 0.6
#: What SQS answers to a call that it does not do, where it does not throttle.
_ANSWERS: dict[Trouble | None, Outcome] = {
    Trouble.ERRORS: Outcome.UNSURE,
    Trouble.DENIED: Outcome.DENIED,
}
#: Of a call there and back, in seconds: lognormal around the median.
_LATENCY = (-3.5, 0.4)


class Network:
    """Time and loss between one worker and SQS.

    Args:
        is_stale: Returns whether a message was received again since, under another handle.

    Attributes:
        trouble: What its calls meet now.
    """

    def __init__(
        self,
        clock: FakeClock,
        sqs: SqsCalls,
        generator: random.Random,
        is_stale: Callable[[Entry], bool],
    ) -> None:
        self._clock = clock
        self._sqs = sqs
        self._is_stale = is_stale
        self._random = generator
        self.trouble: Trouble | None = None

    def latency(self) -> float:
        """Draw how long a call takes, there and back."""
        return self._random.lognormvariate(*_LATENCY)

    def hinders(self, call: Call) -> bool:
        """Return whether that call would go wrong now."""
        if self.trouble is Trouble.KILLED_AFTER_SUCCESS:
            return call.kind is CallKind.DELETE
        if self.trouble is Trouble.SLOW:
            # A release that comes late would take the message from its new owner.
            return all(entry.action is Action.EXTEND for entry in call.entries)
        if self.trouble is Trouble.DENIED:
            return call.kind is CallKind.CHANGE_VISIBILITY
        return self.trouble in (Trouble.LOST, Trouble.REFUSED, Trouble.ERRORS)

    def carry(self, call: Call, settle: Settle) -> None:
        """Carry one call; `settle` is told what became of it."""
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

    def _arrive(self, call: Call, back: float, settle: Settle) -> None:
        """Have SQS answer; a stale handle can only delete.

        A standard queue would let it move the message away from its new owner, and no
        journal could tell of that: the journal of either says that all is well.
        """
        lost = [
            call.kind is CallKind.CHANGE_VISIBILITY and self._is_stale(entry)
            for entry in call.entries
        ]
        entries = [entry for entry, is_lost in zip(call.entries, lost, strict=True) if not is_lost]
        answers = iter(self._sqs.send(replace(call, entries=tuple(entries))) if entries else ())
        self._answer(back, settle, [Outcome.LOST if is_lost else next(answers) for is_lost in lost])

    def _answer(self, after: float, settle: Settle, outcomes: Sequence[Outcome]) -> None:
        self._clock.at(self._clock() + after, partial(settle, outcomes))
