"""Runs a soak: first work and harm, then no harm until every queue is empty."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery

from tests.soak.chaos import Chaos
from tests.soak.fleet import Fleet
from tests.soak.link import FaultInjector, Link
from tests.soak.records import QUEUES, Harm, Note, Records
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
        command = [sys.executable, "-m", module, "--port", str(self.port)]
        for queue in QUEUES.values():
            limit = f":{queue.max_receive_count}" if queue.max_receive_count else ""
            command += ["--queue", f"{queue.name}:{queue.visibility_timeout}{limit}"]
        return command

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        # It runs in its own folder, and this checkout is the one under test.
        return {"PYTHONPATH": str(ROOT)}

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
        taken: set[str] = set()
        for name, url in self._urls.items():
            while (name not in QUEUES) is dead and (
                messages := self._client.receive_message(
                    QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=3600
                ).get("Messages")
            ):
                taken |= {message["MessageId"] for message in messages}
        return taken

    @functools.cached_property
    def _client(self) -> Any:
        return self.client()

    @functools.cached_property
    def _urls(self) -> dict[str, str]:
        return {url.rsplit("/", 1)[-1]: url for url in self._client.list_queues()["QueueUrls"]}

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
        weather = FaultInjector(self._chance("weather"))
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(SimulatedProcess(self.folder / "server.log"))
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
            chaos = Chaos(records, fleet, weather, self._chance("chaos"))
            self._work(fleet, chaos, load, server)
            chaos.end()
            self._drain(fleet, server)
            records.left, records.dead = server.take(dead=False), server.take(dead=True)
            self._end(fleet)
            self.surprises += fleet.surprises
        records.notes = [Note(**json.loads(line)) for line in fleet.ledger.read_text().splitlines()]
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
