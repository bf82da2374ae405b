"""Carries a keeper's calls to the simulated SQS, with the faults of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from botocore.exceptions import ReadTimeoutError

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults, ThreadDispatcher, _Job
from celery_sqs_heartbeat.leases.events import Call, Outcome
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.errors import SqsError


@dataclass(frozen=True, slots=True)
class Ask:
    """One entry of a call: an action for a message. `timeout` in seconds."""

    name: str
    action: str
    timeout: int


@dataclass(slots=True, kw_only=True)
class SentCall:
    """One batch call of the keeper's. Times in seconds of the bench's clock.

    Attributes:
        arrived_at: When SQS did it. None while it is under way, or if it was lost.
        outcomes: The outcomes that the keeper received, by entry. Empty until then.
    """

    at: float
    queue: str
    asks: tuple[Ask, ...]
    arrived_at: float | None = None
    outcomes: tuple[Outcome, ...] = ()

    @property
    def action(self) -> str:
        """What the call does, if all of its entries do the same."""
        (action,) = {ask.action for ask in self.asks}
        return action

    @property
    def names(self) -> list[str]:
        """The messages of its entries, in a fixed order."""
        return sorted(ask.name for ask in self.asks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """What happens to one call. Times in seconds.

    Attributes:
        there: Time on the way to SQS.
        back: Time on the way back.
        lost: Which half never arrives; the caller then waits for its `timeout`.
        error: Raised in place of an answer; nothing is done.
        refused: Entries that SQS refuses, by message name; the others are done.
    """

    there: float = 0.0
    back: float = 0.0
    lost: Literal["request", "answer"] | None = None
    timeout: float = 2.0
    error: Exception | SqsError | None = None
    refused: Mapping[str, SqsError] = field(default_factory=dict)


Network = Callable[[SentCall], Trip]


class Carrier(ThreadDispatcher):
    """The keeper's own way of making calls, on the fake clock in place of threads.

    The package makes the calls and reads their answers and errors. The client under its
    `BotoSqs` is the simulated SQS.

    Args:
        before_arrival: Called whenever SQS is about to do a call.
        after_answer: Called whenever the keeper received an outcome.
    """

    def __init__(
        self,
        clock: FakeClock,
        sqs: SimulatedSqs,
        name_of: Callable[[str], str],
        *,
        before_arrival: Callable[[SentCall], None],
        after_answer: Callable[[], None],
    ) -> None:
        # A call is on its way already when the client gets it: it is never too late to send it.
        super().__init__(BotoSqs(lambda queue_url: self._client), now=lambda: 0.0)
        self.network: Network = lambda call: Trip()
        self.sent: list[SentCall] = []
        self._clock = clock
        self._simulated = sqs
        self._name_of = name_of
        self._before_arrival = before_arrival
        self._after_answer = after_answer
        self._client: Any = sqs

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        """Send the call on its trip."""
        sent = SentCall(
            at=self._clock(),
            queue=call.queue_url.rsplit("/", 1)[-1],
            asks=tuple(
                Ask(self._name_of(entry.receipt_handle), entry.action.value, entry.timeout)
                for entry in call.entries
            ),
        )
        self.sent.append(sent)
        trip = self.network(sent)

        def arrive() -> None:
            outcomes = self._make(call, sent, trip)
            if trip.lost is None:
                self._clock.at(self._clock() + trip.back, lambda: answer(outcomes))

        def time_out() -> None:
            self._client = _Failing(ReadTimeoutError(endpoint_url=call.queue_url))
            answer(self._outcomes(call))

        def answer(outcomes: Sequence[Outcome]) -> None:
            sent.outcomes = tuple(outcomes)
            settle(outcomes)
            self._after_answer()

        if trip.lost != "request":
            self._clock.at(sent.at + trip.there, arrive)
        if trip.lost is not None:
            self._clock.at(sent.at + trip.timeout, time_out)

    def _make(self, call: Call, sent: SentCall, trip: Trip) -> Sequence[Outcome]:
        if trip.error is not None:
            self._client = _Failing(trip.error)
        else:
            sent.arrived_at = self._clock()
            self._before_arrival(sent)
            self._client = _Refusing(self._simulated, self._name_of, trip.refused)
        return self._outcomes(call)

    def _outcomes(self, call: Call) -> Sequence[Outcome]:
        told: list[Outcome] = []
        self._perform(call, told.extend, _Job())
        return told


class _Failing:
    """A client of which every call fails."""

    def __init__(self, error: Exception | SqsError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def fail(**request: Any) -> Any:
            if isinstance(self._error, SqsError):
                raise self._error.as_client_error(name.title().replace("_", ""))
            raise self._error

        return fail


class _Refusing:
    """The simulated SQS, except that it refuses the entries of some messages."""

    def __init__(
        self, sqs: SimulatedSqs, name_of: Callable[[str], str], refused: Mapping[str, SqsError]
    ) -> None:
        self._sqs = sqs
        self._name_of = name_of
        self._refused = refused

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
            failed = [
                self._refused[who].as_entry(entry["Id"])
                for entry in Entries
                if (who := self._name_of(entry["ReceiptHandle"])) in self._refused
            ]
            accepted = [
                entry
                for entry in Entries
                if self._name_of(entry["ReceiptHandle"]) not in self._refused
            ]
            answer: dict[str, Any] = (
                getattr(self._sqs, name)(QueueUrl=QueueUrl, Entries=accepted) if accepted else {}
            )
            if failed:
                answer["Failed"] = [*answer.get("Failed", ()), *failed]
            return answer

        return call
