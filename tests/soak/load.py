"""Random tasks on random queues."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from tests.soak.model import Queue

#: Two plain queues, and one with dead letters whose timeout changes. Short timeouts: leases
#: are always due. The changed ones are longer than any delay of a release on that queue.
QUEUES: Mapping[str, Queue] = {
    queue.name: queue
    for queue in (
        Queue(name="fast", visibility_timeout=4),
        Queue(name="slow", visibility_timeout=6),
        Queue(name="strict", visibility_timeout=5, max_receive_count=6, timeouts=(3, 3, 6, 10)),
    )
}
STRICT = ("strict",)
PLAIN = ("fast", "slow")
ANY = ("fast", "slow", "strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A way to send a task. `weight` says how often, times are in seconds.

    Attributes:
        longest: The task sleeps for up to so long.
        times: How often it fails, or asks for another try, at the most.
        options: Of the sending, each with the most that is drawn for it.
    """

    task: str
    weight: int
    longest: float = 1.0
    times: int = 0
    queues: tuple[str, ...] = ANY
    options: Mapping[str, float] = field(default_factory=dict)


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
)


class Load:
    """Sends tasks through the soak's own link."""

    def __init__(self, broker_url: str, chance: random.Random) -> None:
        self._chance = chance
        self._app = Celery("soak-load", broker=broker_url, set_as_current=False)
        self._app.conf.broker_transport_options = {"region": "us-east-1", "is_secure": False}

    def send(self) -> None:
        """Send one task."""
        (kind,) = self._chance.choices(KINDS, [kind.weight for kind in KINDS])
        arguments: list[Any] = [round(self._chance.random() * kind.longest, 2)]
        if kind.times:
            endless = kind.times > 2
            arguments.append(kind.times if endless else self._chance.randint(1, kind.times))
        options = {name: 1 + self._chance.random() * most for name, most in kind.options.items()}
        queue = self._chance.choice(kind.queues)
        self._app.send_task(
            f"tests.soak.proj.{kind.task}", arguments, queue=queue, routing_key=queue, **options
        )

    def close(self) -> None:
        """End its connections."""
        self._app.close()
