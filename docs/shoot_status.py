"""`python -m docs.shoot_status`: makes the pictures of the status page, from made-up data.

Needs Chromium and its driver. A keeper runs on a clock of its own, which it is led along for
some minutes of a worker's life before the pictures are taken.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Call, Outcome
from celery_sqs_heartbeat.leases.lease import Action, LeaseTerms
from celery_sqs_heartbeat.observe.metrics import Metrics
from celery_sqs_heartbeat.observe.page_data import PageData
from celery_sqs_heartbeat.observe.status import pages_of, serve
from tests.support.browser import chromium, emulate

IMAGES = Path(__file__).parent / "img"
TERMS = LeaseTerms(visibility_timeout=60, threshold=20)
IN_ORDER = replace(TERMS, in_order=True)
#: Of the made-up life before the pictures, in seconds.
HISTORY = 29 * 60
#: How long before the pictures some leases are lost, or a little later.
LOSSES_BEHIND = 45
#: How long before the pictures messages of a FIFO queue come, and the first of a group fails.
GROUPS_BEHIND, FAILURE_BEHIND = 40, 15
#: Messages of each group of that queue.
GROUPS = {"customer-17": 3, "customer-4": 2, "customer-31": 3}
#: The group whose first message fails, and after how many seconds that comes again.
FAILED, AGAIN_AFTER = "customer-31", 60
#: Tasks that run at once; the other messages wait.
SLOTS = 6
QUEUES = {
    "orders": ("shop.tasks.charge", "shop.tasks.invoice"),
    "media": ("media.tasks.transcode",),
}


class DemoClock:
    """The time now, less what is left of the history."""

    def __init__(self) -> None:
        self.behind = float(HISTORY)

    def __call__(self) -> float:
        """Return it, in seconds."""
        return clock.now() - self.behind


class DemoSqs:
    """Confirms every call, except extensions of messages whose leases must appear lost."""

    def __init__(self) -> None:
        self.stolen: set[str] = set()

    def send(self, call: Call) -> Sequence[Outcome]:
        """Answer a call."""
        return [
            Outcome.LOST
            if entry.action is Action.EXTEND and entry.lease.message_id in self.stolen
            else Outcome.DONE
            for entry in call.entries
        ]


class AtOnce:
    """Makes each call at once, on the thread that asks."""

    def __init__(self, sqs: DemoSqs) -> None:
        self._sqs = sqs

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        """Make the call."""
        settle(self._sqs.send(call))

    def give_up(self, call: Call) -> None:
        """Do nothing: each is answered at once."""

    def close(self) -> None:
        """Do nothing."""


class Demo:
    """A worker's keeper with leases on two queues, and its status page."""

    def __init__(self) -> None:
        self.clock, self.sqs, self.chance = DemoClock(), DemoSqs(), random.Random(3)
        metrics = Metrics()
        data = PageData(metrics, "celery@worker-1")
        self.keeper = ThreadKeeper(
            self.sqs,
            terms=TERMS,
            clock=self.clock,
            jitter=self.chance.random,
            observers=[metrics, data],
            dispatcher=AtOnce(self.sqs),
        )
        metrics.watch(self.keeper)
        self.pages = pages_of(data, metrics)
        self.running: dict[str, float] = {}
        self.started: set[str] = set()

    def live(self) -> None:
        """Lead the keeper through the history, a second at a time."""
        while self.clock.behind > 0:
            self._begin_tasks()
            self._start_tasks()
            self._end_tasks()
            self._lose_some()
            self._order_some()
            self.keeper.step()
            self.clock.behind = max(0.0, self.clock.behind - 1)

    def _begin_tasks(self) -> None:
        age = HISTORY - self.clock.behind
        wanted = 9 + 4 * math.sin(age / 300)
        while len(self.running) < wanted:
            queue = ("orders", "media", "orders")[len(self.running) % 3]
            name = f"{self.chance.getrandbits(128):032x}"
            name = "-".join((name[:8], name[8:12], name[12:16], name[16:20], name[20:]))
            message = {"MessageId": name, "ReceiptHandle": name}
            url = f"https://sqs.eu-west-1.example/123456789012/{queue}"
            task = self.chance.choice(QUEUES[queue])
            self.keeper.receive(url, message, task=task, task_id=name)
            self.running[name] = self.clock() + self.chance.expovariate(1 / 100) + 5

    def _start_tasks(self) -> None:
        for name in list(self.running)[:SLOTS]:
            if name not in self.started:
                self.started.add(name)
                self.keeper.note_start(name)

    def _lose_some(self) -> None:
        """Have two leases be lost late enough to be seen."""
        if self.clock.behind < LOSSES_BEHIND and not self.sqs.stolen:
            self.sqs.stolen = set(list(self.running)[:2])
            self.running |= dict.fromkeys(self.sqs.stolen, self.clock() + HISTORY)

    def _order_some(self) -> None:
        """Receive messages of groups late enough to be seen, and have one of them fail."""
        url = "https://sqs.eu-west-1.example/123456789012/ledger.fifo"
        if self.clock.behind == GROUPS_BEHIND:
            for group, count in GROUPS.items():
                for number in range(count):
                    name = f"{self.chance.getrandbits(128):032x}"
                    message = {
                        "MessageId": name,
                        "ReceiptHandle": f"{group} {number}",
                        "Attributes": {"MessageGroupId": group, "SequenceNumber": str(number)},
                    }
                    self.keeper.receive(url, message, task="ledger.tasks.book", terms=IN_ORDER)
                self.keeper.note_start(f"{group} 0")
        if self.clock.behind == FAILURE_BEHIND:
            self.keeper.release(f"{FAILED} 0", AGAIN_AFTER, cause="failed")

    def _end_tasks(self) -> None:
        for name, end in tuple(self.running.items()):
            if self.clock() < end:
                continue
            del self.running[name]
            if self.chance.random() < 0.06:
                cause = self.chance.choice(["failed", "shutdown", "rejected"])
                self.keeper.release(name, cause=cause)
            else:
                self.keeper.done(name)


def shoot(folder: Path) -> None:
    """Write the pictures into a folder."""
    folder.mkdir(exist_ok=True)
    demo = Demo()
    demo.live()
    demo.keeper.start()
    server = serve("127.0.0.1:0", demo.pages)
    assert server is not None
    try:
        with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as driver:
            for name, scheme, width in (
                ("light", "light", 1100),
                ("dark", "dark", 1100),
                ("phone", "light", 360),
            ):
                emulate(driver, scheme=scheme, size=(width, 900))
                driver.get(f"http://127.0.0.1:{server.port}/")
                time.sleep(2.5)
                height = driver.execute_script("return document.documentElement.scrollHeight")
                emulate(driver, scheme=scheme, size=(width, min(height, 1800)))
                time.sleep(0.5)
                driver.save_screenshot(str(folder / f"status-{name}.png"))
    finally:
        server.stop()
        demo.keeper.stop()


if __name__ == "__main__":
    shoot(IMAGES)
