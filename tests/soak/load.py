"""Random tasks on random queues, and ordered steps of message groups."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from tests.soak.model import Queue

#: Two plain queues, one queue with dead letters whose timeout changes, and a FIFO queue. Their
#: timeouts are short, so that leases are always due. The changed timeouts are longer than any delay
#: of a release on that queue. The shortest harms a worker that does not notice it, so it is drawn
#: most.
QUEUES: Mapping[str, Queue] = {
    queue.name: queue
    for queue in (
        Queue(name="fast", visibility_timeout=4),
        Queue(name="slow", visibility_timeout=6),
        Queue(name="strict", visibility_timeout=5, max_receive_count=6, timeouts=(3, 3, 6, 10)),
        Queue(name="steps.fifo", visibility_timeout=6),
    )
}
STRICT = ("strict",)
PLAIN = ("fast", "slow")
ANY = ("fast", "slow", "strict")
FIFO = ("steps.fifo",)
#: Few groups, so that messages wait for others of their group.
GROUPS = ("a", "b", "c")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    Kind(task="work", weight=8),
    Kind(task="work", weight=5, longest=8.0),
    Kind(task="work", weight=1, longest=16.0),
    Kind(task="work", weight=4, options={"countdown": 9.0}),
    Kind(task="work", weight=2, options={"expires": 4.0}),
    Kind(task="early", weight=3, longest=3.0),
    Kind(task="limited", weight=2, longest=0.5),
    Kind(task="flaky", weight=3, times=2),
    Kind(task="flaky", weight=1, times=1_000, queues=STRICT),
    Kind(task="quits", weight=3, times=2),
    Kind(task="quits", weight=1, times=1_000, queues=STRICT),
    Kind(task="requeue", weight=2, times=2),
    Kind(task="again", weight=3, times=2),
    Kind(task="bad", weight=1),
    Kind(task="together", weight=4, longest=4.0),
    Kind(task="refuse", weight=1, queues=PLAIN),
    Kind(task="step", weight=3, longest=0.5, queues=FIFO, burst=4),
    Kind(task="step", weight=1, longest=4.0, queues=FIFO),
    Kind(task="step", weight=3, times=1, queues=FIFO, burst=3),
)


class Load:
    """Sends tasks through the soak's own link."""

    def __init__(self, broker_url: str, chance: random.Random) -> None:
        self._chance = chance
        self._app = Celery("soak-load", broker=broker_url, set_as_current=False)
        self._app.conf.broker_transport_options = {"region": "us-east-1", "is_secure": False}

    def send(self) -> None:
        """Send one task, or several to one group."""
        (kind,) = self._chance.choices(KINDS, [kind.weight for kind in KINDS])
        queue, group = self._chance.choice(kind.queues), {}
        if kind.queues is FIFO:
            group = {"MessageGroupId": self._chance.choice(GROUPS)}
        for _ in range(self._chance.randint(1, kind.burst)):
            self._send_one(kind, queue, group)

    def _send_one(self, kind: Kind, queue: str, group: Mapping[str, str]) -> None:
        arguments: list[Any] = [round(self._chance.random() * kind.longest, 2)]
        if kind.times:
            endless = kind.times > 2
            arguments.append(kind.times if endless else self._chance.randint(1, kind.times))
        options = {name: 1 + self._chance.random() * most for name, most in kind.options.items()}
        self._app.send_task(
            f"tests.soak.proj.{kind.task}",
            arguments,
            queue=queue,
            routing_key=queue,
            **options,
            **group,
        )

    def close(self) -> None:
        """End its connections."""
        self._app.close()
