"""The fleet's world: queues, messages, their receivers, and the times of disturbances."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

from celery_sqs_heartbeat.common.journal_facts import Identity
from celery_sqs_heartbeat.leases.events import Entry
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue
from fleet import profile
from fleet.bare import BareWorker, DeadPoll
from fleet.profile import QUEUES, QueueProfile, Trouble, worker_info
from fleet.recorder import Recorder
from fleet.truth import History
from fleet.worker import Worker

#: The clock's zero, 2026-02-28 23:15:00 UTC, in Unix seconds. So the fleet lives past a midnight.
EPOCH = 1_772_320_500
#: How often workers receive messages, in seconds.
_TICK = 0.5
#: SQS delivers no copy while a message of the queue becomes visible again within this many seconds.
_MARGIN = 2.0
#: The shortest time between two disturbances of one worker, in seconds.
_QUIET = 900.0


class World:
    """The whole simulation of one seed.

    Args:
        journal: The folder of the workers' journals.
        hours: How long messages are sent. Then the fleet finishes the rest, and stops.
    """

    def __init__(self, journal: Path, *, workers: int, hours: float, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.sqs = SimulatedSqs(self.clock, seed=seed, epoch=EPOCH)
        self.adapter = BotoSqs(self.sqs)
        self.histories: dict[str, History] = {}
        self.recorders: list[Recorder] = []
        self._journal = journal
        self._seconds = hours * 3600
        self._count = workers
        self._is_over = False
        self._second_delivery: str | None = None
        self._info = worker_info()
        self._troubles = itertools.cycle(Trouble)
        self._pids = itertools.count(100)
        self._dead = self.sqs.new_queue("dead")
        self._queues = {
            each.name: self.sqs.new_queue(
                each.name,
                QueueOptions(
                    visibility_timeout=each.visibility_timeout,
                    retention=1_209_600,
                    max_receive_count=each.max_receive_count,
                    dead_letters=self._dead,
                ),
            )
            for each in QUEUES
        }
        self.urls = {name: queue.url for name, queue in self._queues.items()}
        self.workers: list[Worker] = []
        self._bare: list[BareWorker | DeadPoll] = [
            BareWorker(self) for _ in range(max(1, workers // profile.BARE_EVERY))
        ]
        for _ in range(workers):
            self._hire()

    def run(self) -> None:
        """Run the simulation to its end."""
        for queue in QUEUES:
            self._send_next(queue)
        self._every(profile.TROUBLE_EVERY / self._count, self._trouble)
        self._every(profile.SECOND_DELIVERY_EVERY / self._count, self._deliver_twice)
        self._tick()
        self.clock.advance(self._seconds)
        self._is_over = True
        while any(queue.messages for queue in self._queues.values()):
            self.clock.advance(60.0)
        for worker in list(self.workers):
            worker.stop()
        while self.workers:
            self.clock.advance(1.0)

    def dead_letters(self) -> list[str]:
        """Return the ids of the dead letters that a journal shows."""
        return [
            message_id
            for message_id in self._dead.messages
            if self.histories[message_id].receives[-1].wid is not None
        ]

    def is_stale(self, entry: Entry) -> bool:
        """Return whether the entry's message was received again later."""
        queue = self._queues[self.histories[entry.lease.message_id].queue]
        message = queue.messages.get(entry.lease.message_id)
        return message is not None and message.handle != entry.receipt_handle

    def leave_poll(self) -> None:
        """Leave the poll of a killed worker open."""
        self._bare.append(DeadPoll(self))

    def ended(self, worker: Worker) -> None:
        """Replace a worker that has exited."""
        self.workers.remove(worker)
        if not self._is_over or any(queue.messages for queue in self._queues.values()):
            self.clock.at(self.clock() + self.random.uniform(2, 20), self._hire)

    def _hire(self) -> None:
        """Start a worker, whose wall clock is wrong by some seconds."""
        skew = round(self.random.choice((-1, 1)) * self.random.uniform(*profile.SKEW) * 1_000_000)
        wall = EPOCH * 1_000_000 + skew
        pid = next(self._pids)
        identity = Identity(
            host=f"host-{pid % self._count}",
            pid=pid,
            boot=None,
            started=wall + round(self.clock() * 1_000_000),
        )
        recorder = Recorder(self._journal, identity, self.clock, wall)
        recorder.start(replace(self._info, node=f"celery@{identity.host}"))
        self.recorders.append(recorder)
        self.workers.append(Worker(self, recorder))

    def _send_next(self, queue: QueueProfile) -> None:
        slots = self._count * profile.CONCURRENCY * profile.LOAD
        mean = sum(each.share * each.mean for each in QUEUES)
        wait = self.random.expovariate(slots / mean * queue.share)

        def send() -> None:
            if self._is_over:
                return
            url = self.urls[queue.name]
            message_id = self.sqs.call("SendMessage", {"QueueUrl": url, "MessageBody": "{}"})
            is_poisoned = bool(queue.max_receive_count) and self.random.random() < profile.POISONED
            history = History(message_id["MessageId"], queue.name, is_poisoned)
            self.histories[history.message_id] = history
            self._send_next(queue)

        self.clock.at(self.clock() + wait, send)

    def _tick(self) -> None:
        """Deliver visible messages to the workers that have room."""
        for queue in QUEUES:
            takers = [each for each in (*self.workers, *self._bare) if each.room > 0]
            self.random.shuffle(takers)
            for taker in takers:
                if not self._receive(queue, taker):
                    break
        self.clock.at(self.clock() + _TICK, self._tick)

    def _receive(self, queue: QueueProfile, taker: Worker | BareWorker | DeadPoll) -> bool:
        there = self._queues[queue.name]
        now = self.clock()
        # No journal shows a copy that only a receiver without one gets.
        is_twice = (
            taker.wid is not None and self._second_delivery == queue.name and self._is_calm(there)
        )
        if not is_twice and not there.visible(now):
            return False
        hidden = set[str]()
        if is_twice:
            self._second_delivery = None
            there.options.duplicate_rate = 1.0
            hidden = {each.message_id for each in there.messages.values() if each.is_in_flight(now)}
        request = {
            "QueueUrl": there.url,
            "MaxNumberOfMessages": 1 if is_twice else min(taker.room, 10),
            "AttributeNames": ["All"],
        }
        messages = self.sqs.call("ReceiveMessage", request).get("Messages", [])
        there.options.duplicate_rate = 0.0
        for message in messages:
            receive = self.histories[message["MessageId"]].deliver(
                taker.wid,
                int(message["Attributes"]["ApproximateReceiveCount"]),
                is_second=message["MessageId"] in hidden,
            )
            taker.take(queue, message, receive)
        return bool(messages)

    def _is_calm(self, queue: SimulatedQueue) -> bool:
        """Return whether a copy delivered now could have no other explanation."""
        now = self.clock()
        ends = [each.visible_at for each in queue.messages.values() if each.is_in_flight(now)]
        return all(end > now + _MARGIN for end in ends) and all(
            each.is_calm for each in (*self.workers, *self._bare)
        )

    def _every(self, seconds: float, job: object) -> None:
        """Call `job` at random times until the world ends."""
        assert callable(job)

        def again() -> None:
            if not self._is_over:
                job()
                self._every(seconds, job)

        self.clock.at(self.clock() + self.random.expovariate(1 / seconds), again)

    def _trouble(self) -> None:
        """Disturb a worker that was not disturbed recently."""
        since = self.clock() - _QUIET
        quiet = [
            each
            for each in self.workers
            if each.is_up and not each.is_stopping and each.troubled_at <= since
        ]
        if quiet:
            self.random.choice(quiet).meet(next(self._troubles))

    def _deliver_twice(self) -> None:
        self._second_delivery = self.random.choice(QUEUES).name
