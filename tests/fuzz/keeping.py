"""A keeper on a fake clock, with a client that returns any answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock

QUEUE = "https://sqs/1/q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


class Client:
    """Stands for a boto3 client. Returns or raises the answers of its script."""

    def __init__(self) -> None:
        #: The next answers. After the last one, every entry is confirmed.
        self.script: list[Any] = []
        self.deleted: set[str] = set()

    def change_message_visibility_batch(self, **request: Any) -> Any:
        return self._answer(request)

    def delete_message_batch(self, **request: Any) -> Any:
        self.deleted |= {entry["ReceiptHandle"] for entry in request["Entries"]}
        return self._answer(request)

    def _answer(self, request: dict[str, Any]) -> Any:
        assert 1 <= len(request["Entries"]) <= 10
        if not self.script:
            return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]]}
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class LaterDispatcher(ThreadDispatcher):
    """Makes the calls when the test requests it, as a thread would make them."""

    def __init__(self, sqs: BotoSqs, now: Callable[[], float]) -> None:
        super().__init__(sqs, now=now)
        self.waiting: list[Callable[[], object]] = []
        self._threads = SimpleNamespace(submit=lambda job: self.waiting.append(job))

    def make_calls(self) -> bool:
        """Make all waiting calls. Return whether there were any."""
        calls, self.waiting = self.waiting, []
        for call in calls:
            call()
        return bool(calls)


class Keeping:
    """The keeper with its clock, client and dispatcher."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.client = Client()
        sqs = BotoSqs(self.client)
        self.dispatcher = LaterDispatcher(sqs, self.clock)
        self.keeper = ThreadKeeper(
            sqs,
            terms=TERMS,
            clock=self.clock,
            jitter=lambda: 1.0,
            dispatcher=self.dispatcher,
        )

    def receive(self, name: str, attributes: Any = None) -> None:
        message = {"MessageId": name, "ReceiptHandle": name, "Attributes": attributes}
        self.keeper.receive(QUEUE, message)

    def run(self, seconds: float) -> None:
        """Do what the keeper's thread would do in that time. Each call is answered at once."""
        end = self.clock() + seconds
        steps = 0
        while self.clock() <= end:
            due = self.keeper.step()
            # An answer wakes the thread. Without one it sleeps.
            if not self.dispatcher.make_calls():
                self.clock.advance(max(0.0, due - self.clock()))
            steps += 1
            assert steps < 100 * seconds + 100, "the keeper spins"
