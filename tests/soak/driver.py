"""Runs a soak: first work and harm, then no harm until every queue is empty."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery

from tests.soak.chaos import Chaos, Intruder
from tests.soak.fleet import Fleet
from tests.soak.link import FaultInjector, Link
from tests.soak.records import QUEUES, Harm, Note, Queue, Records
from tests.support.servers import ProcessServer
from tests.support.stalls import Stall, StallWatch, StarvationWatch
from tests.support.waiting import PATIENCE
from tests.support.workers import ROOT

#: How many workers run that are not in shutdown.
WORKERS = 3
#: The most workers at a time. Each has 2 to 4 processes: more would only wait for a CPU.
MOST_WORKERS = 5
#: How many tasks are sent per second, on average.
TASKS_PER_SECOND = 5.0
#: No task is sent while so many messages wait.
MOST_WAITING = 25
TICK = 0.05
STRICT = ("strict",)
PLAIN = ("fast", "slow")
ANY = ("fast", "slow", "strict")
FIFO = ("steps.fifo",)
#: Few groups, so that messages wait for others of their group.
GROUPS = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to send a task. Times are in seconds.

    Attributes:
        weight: How often it is drawn, relative to the others.
        longest: The longest time that the task sleeps.
        times: The most times that it fails or requests another try.
        options: Options of `send_task`, each with the largest value that is drawn for it.
        burst: The most messages that are sent to one group in a row.
    """

    task: str
    weight: int
    longest: float = 1.0
    times: int = 0
    queues: tuple[str, ...] = ANY
    options: Mapping[str, float] = field(default_factory=dict)
    burst: int = 1


KINDS = (
    Kind("work", 8),
    Kind("work", 5, longest=8.0),
    Kind("work", 1, longest=16.0),
    Kind("work", 4, options={"countdown": 9.0}),
    Kind("work", 2, options={"expires": 4.0}),
    Kind("early", 3, longest=3.0),
    Kind("limited", 2, longest=0.5),
    Kind("flaky", 3, times=2),
    Kind("flaky", 1, times=1_000, queues=STRICT),
    Kind("quits", 3, times=2),
    Kind("quits", 1, times=1_000, queues=STRICT),
    Kind("requeue", 2, times=2),
    Kind("again", 3, times=2),
    Kind("bad", 1),
    Kind("together", 4, longest=4.0),
    Kind("refuse", 1, queues=PLAIN),
    Kind("step", 3, longest=0.5, queues=FIFO, burst=4),
    Kind("step", 1, longest=4.0, queues=FIFO),
    Kind("step", 3, times=1, queues=FIFO, burst=3),
)


class Load:
    """Sends random tasks to random queues, and ordered steps to message groups."""

    def __init__(self, broker_url: str, chance: random.Random) -> None:
        self._chance = chance
        self._app = Celery("soak-load", broker=broker_url, set_as_current=False)
        self._app.conf.broker_transport_options = {"region": "us-east-1", "is_secure": False}
        self.close = self._app.close

    def send(self) -> None:
        """Send one task, or several to one group."""
        (kind,) = self._chance.choices(KINDS, [kind.weight for kind in KINDS])
        queue, group = self._chance.choice(kind.queues), {}
        if kind.queues is FIFO:
            group = {"MessageGroupId": self._chance.choice(GROUPS)}
        for _ in range(self._chance.randint(1, kind.burst)):
            arguments: list[Any] = [round(self._chance.random() * kind.longest, 2)]
            if kind.times:
                is_endless = kind.times > 2
                times = kind.times if is_endless else self._chance.randint(1, kind.times)
                arguments.append(times)
            options = {key: 1 + self._chance.random() * most for key, most in kind.options.items()}
            self._app.send_task(
                f"tests.soak.proj.{kind.task}",
                arguments,
                queue=queue,
                routing_key=queue,
                **options,
                **group,
            )


class SimulatedProcess(ProcessServer):
    """`python -m celery_sqs_heartbeat.testing.server`, and a direct look at its queues."""

    def command(self) -> list[str]:
        """Return what to run."""
        module = "celery_sqs_heartbeat.testing.server"
        return [sys.executable, "-m", module, "--port", str(self.port)]

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        # It runs in its own folder, and this checkout is the one under test.
        return {"PYTHONPATH": str(ROOT)}

    def create(self, queues: Iterable[Queue]) -> None:
        """Create the queues, with their dead-letter queues."""
        client = self._client = self.client()
        for queue in queues:
            attributes = {"VisibilityTimeout": str(queue.visibility_timeout)}
            if queue.is_fifo:
                attributes["FifoQueue"] = "true"
            if queue.max_receive_count is not None:
                url = client.create_queue(QueueName=f"{queue.name}-dead")["QueueUrl"]
                told = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
                policy = {
                    "deadLetterTargetArn": told["Attributes"]["QueueArn"],
                    "maxReceiveCount": queue.max_receive_count,
                }
                attributes["RedrivePolicy"] = json.dumps(policy)
            client.create_queue(QueueName=queue.name, Attributes=attributes)
        self._urls = {url.rsplit("/", 1)[-1]: url for url in client.list_queues()["QueueUrls"]}

    def set_timeout(self, queue: str, seconds: int) -> None:
        """Change a queue's visibility timeout."""
        attributes = {"VisibilityTimeout": str(seconds)}
        self._client.set_queue_attributes(QueueUrl=self._urls[queue], Attributes=attributes)

    def waiting(self) -> int:
        """Return how many messages are visible now."""
        return self._count([""])

    def left(self) -> int:
        """Return how many messages the queues have, hidden or not, without dead letters.

        A message may move to a queue that was counted already. So only a second 0 is certain.
        """
        kinds = ["", "NotVisible", "Delayed"]
        return self._count(kinds) or self._count(kinds)

    def take(self, *, dead: bool) -> set[str]:
        """Receive all visible messages, or all dead letters. Return their ids."""
        names = [name for name in self._urls if (name not in QUEUES) is dead]
        return set(itertools.chain.from_iterable(map(self._take, names)))

    def _count(self, kinds: list[str]) -> int:
        count = 0
        for name in QUEUES:
            # By one call, because a message may become visible at any time.
            answer = self._client.get_queue_attributes(
                QueueUrl=self._urls[name],
                AttributeNames=[f"ApproximateNumberOfMessages{kind}" for kind in kinds],
            )
            count += sum(map(int, answer["Attributes"].values()))
        return count

    def _take(self, name: str) -> Iterator[str]:
        while messages := self._client.receive_message(
            QueueUrl=self._urls[name], MaxNumberOfMessages=10, VisibilityTimeout=3600
        ).get("Messages"):
            yield from (message["MessageId"] for message in messages)


@dataclass(kw_only=True)
class Soak:
    """One run of the soak.

    Attributes:
        surprises: Faults that concern no message, for example of a worker.
    """

    seed: int
    seconds: float
    folder: Path
    records: Records = field(default_factory=lambda: Records(queues=QUEUES))
    surprises: list[str] = field(default_factory=list)

    def run(self) -> Records:
        """Run it and return its records. By then, all processes have ended."""
        records = self.records
        weather = FaultInjector(self._chance("weather"), self._chance("starts"))
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(SimulatedProcess(self.folder / "server.log"))
            server.create(QUEUES.values())
            watch = StarvationWatch(self._note_starved)
            watch.watch("proxy", os.getpid())
            watch.watch("server", server.pid)
            for each in (watch, StallWatch(self._note_stall)):
                each.start()
                stack.callback(each.stop)
            own = Link("soak", server.url, records.calls)
            stack.enter_context(own.proxy)
            load = Load(own.proxy.broker_url, self._chance("load"))
            stack.callback(load.close)
            chance = self._chance("workers")
            fleet = Fleet(records, weather, chance, watch, server.url, self.folder)
            stack.callback(fleet.close)
            intruder = Intruder(self.folder, self._chance("intruder"))
            chance = self._chance("chaos")
            chaos = Chaos(records, fleet, weather, intruder, chance, server.set_timeout)
            self._work(fleet, chaos, load, server)
            chaos.end()
            self._drain(fleet, server)
            records.left, records.dead = server.take(dead=False), server.take(dead=True)
            self._end(fleet)
            self.surprises += [*fleet.surprises, *intruder.surprises()]
        records.notes = read_ledger(fleet.ledger)
        return records

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def _work(self, fleet: Fleet, chaos: Chaos, load: Load, server: SimulatedProcess) -> None:
        chance = self._chance("times")
        began = time.monotonic()
        next_task = next_look = began
        waiting = 0
        fleet.start(queues=[*QUEUES])
        while (now := time.monotonic()) < began + self.seconds:
            chaos.tick()
            fleet.reap()
            members = [*fleet]
            staying = sum(not member.is_leaving for member in members)
            if staying < WORKERS and len(members) < MOST_WORKERS:
                fleet.start()
            if now >= next_look:
                next_look, waiting = now + 1, server.waiting()
            if now >= next_task:
                next_task = now + chance.expovariate(TASKS_PER_SECOND)
                if waiting < MOST_WAITING:
                    load.send()
            time.sleep(TICK)

    def _drain(self, fleet: Fleet, server: SimulatedProcess) -> None:
        for member in fleet:
            fleet.ask_to_exit(member)
        for pool in ("prefork", "threads"):
            fleet.start(pool, [*QUEUES])
        deadline = time.monotonic() + PATIENCE
        while server.left() and time.monotonic() < deadline:
            fleet.reap()
            time.sleep(4 * TICK)

    def _end(self, fleet: Fleet) -> None:
        for member in fleet:
            fleet.ask_to_exit(member)
        while not fleet.is_gone:
            fleet.reap()
            time.sleep(TICK)

    def _note_starved(self, name: str, since: float, until: float) -> None:
        # The calls of all workers pass the proxy and the server.
        worker = name if name in self.records.workers else ""
        harm = Harm(what="starved", at=since, worker=worker, until=until)
        self.records.harms.append(harm)

    def _note_stall(self, stall: Stall) -> None:
        """Record a stall of the soak's own process, which runs nothing of the product.

        It concerns all workers, because their calls pass the proxies in that process.
        """
        since = stall.until - stall.seconds
        harm = Harm(what="stalled", at=since, worker="", until=stall.until)
        self.records.harms.append(harm)


def read_ledger(ledger: Path) -> list[Note]:
    """Return what the tasks and workers recorded."""
    return [Note(**json.loads(line)) for line in ledger.read_text().splitlines()]
