"""Keeps leases in this process for a while, and prints what that costs, as JSON.

It prints "ready" once it has the leases, and begins to extend them when it reads a line.

    python -m benchmarks.scale.keeping URL LEASES SECONDS ROUNDS
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import psutil

from benchmarks.scale.adapters import TERMS, sqs_at
from benchmarks.scale.kept import CYCLE, Kept
from benchmarks.scale.messages import QUEUE, TASK, messages
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Call, Event, EventKind, Outcome
from celery_sqs_heartbeat.sqs.adapter import BotoSqs

#: An extension counts as late if less than this is left of the lease, in seconds.
_SAFE_SECONDS = TERMS.threshold / 2
_WARM_UP = 1.0


class LateClock:
    """A clock that stands at zero until it is started, so that no extension is due meanwhile."""

    def __init__(self) -> None:
        self._started: float | None = None

    def __call__(self) -> float:
        """Return the seconds since the start."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    def start(self) -> None:
        """Start it."""
        self._started = time.monotonic()


class Watch:
    """Counts calls and events of a keeper."""

    def __init__(self, sqs: BotoSqs) -> None:
        self._sqs = sqs
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
        with self._lock:
            self.calls = self.extended = self.late = self.expired = 0

    def send(self, call: Call, may_send: Callable[[], bool]) -> Sequence[Outcome]:
        """Make a call."""
        with self._lock:
            self.calls += 1
        return self._sqs.send(call, may_send)

    def note(self, event: Event) -> None:
        """Count an event."""
        with self._lock:
            if event.kind is EventKind.LEASE_EXTENDED:
                self.extended += 1
                self.late += event.slack < _SAFE_SECONDS
            elif event.kind is EventKind.LEASE_EXPIRED:
                self.expired += 1


def receive(keeper: ThreadKeeper, leases: int) -> None:
    """Begin leases whose extensions are due evenly in the next cycle."""
    now = keeper.now()
    for index, (message, task_id) in enumerate(messages(leases)):
        age = CYCLE * (1 - (index + 1) / leases)
        keeper.receive(QUEUE, message, sent_at=now - age, task=TASK, task_id=task_id)


def keep(url: str, leases: int, seconds: float, rounds: int) -> list[Kept]:
    """Keep leases for some rounds, and return what each cost."""
    watch, clock = Watch(sqs_at(url)), LateClock()
    keeper = ThreadKeeper(watch, terms=TERMS, observers=[watch.note], clock=clock)
    keeper.start()
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    receive(keeper, leases)
    gc.collect()
    print("ready", flush=True)
    sys.stdin.readline()
    memory = (process.memory_info().rss - before) / leases
    clock.start()
    # boto3's first calls take longer: they load what the next ones reuse.
    time.sleep(_WARM_UP)
    return [_round(watch, leases, memory, seconds) for _ in range(rounds)]


def _round(watch: Watch, leases: int, resident: float, seconds: float) -> Kept:
    watch.reset()
    begun, cpu = time.monotonic(), time.process_time()
    time.sleep(seconds)
    cpu, lasted = time.process_time() - cpu, time.monotonic() - begun
    return Kept(
        leases=leases,
        cpu=cpu,
        seconds=lasted,
        resident=resident,
        calls=watch.calls,
        extended=watch.extended,
        late=watch.late,
        expired=watch.expired,
    )


if __name__ == "__main__":
    _url, _leases, _seconds, _rounds = sys.argv[1:]
    _kept = keep(_url, int(_leases), float(_seconds), int(_rounds))
    print(json.dumps([asdict(each) for each in _kept]), flush=True)
