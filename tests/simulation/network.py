"""Carries calls to the simulated SQS and their answers back, or loses either."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.testing import FakeClock, Faults
from tests.simulation.hangs import Hang

#: For a call that does not hang.
NONE = Hang()


class Network:
    """Time and loss between workers and SQS."""

    def __init__(self, clock: FakeClock, faults: Faults) -> None:
        self._clock = clock
        self._faults = faults

    def carry(
        self,
        operation: str,
        arrive: Callable[[Callable[[Any], None], bool], None],
        answered: Callable[[Any], None],
        lost: Callable[[], None],
        timeout: float,
        hang: Hang = NONE,
    ) -> None:
        """Carry one call.

        Args:
            arrive: Executes the call at SQS. Its arguments are the function to call with the
                answer, and whether the caller has given up already.
            answered: Called with the answer, if it arrives in time.
            lost: Called if no answer arrives in time. Exactly one of the two is called, once. If
                the call hangs, that happens late or never.
        """
        fault = self._faults.of(operation)
        begin = self._clock()
        is_over = False

        def give_up() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                lost()

        def answer(value: Any) -> None:
            def deliver() -> None:
                nonlocal is_over
                if not is_over:
                    is_over = True
                    answered(value)

            if not self._faults.happens(fault.lost_answer):
                back = self._faults.travel_time(operation) + hang.back
                self._clock.at(self._clock() + back, deliver)

        fails_after = timeout if hang is NONE else hang.fails_after
        if fails_after < math.inf:
            self._clock.at(begin + fails_after, give_up)
        if not self._faults.happens(fault.lost_request) and hang.there < math.inf:
            there = self._faults.travel_time(operation) + hang.there
            self._clock.at(begin + there, lambda: arrive(answer, is_over))
