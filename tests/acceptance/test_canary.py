"""One worker with the flag beside a stock worker, and back again, as the page shows."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.acceptance.record import extensions
from tests.acceptance.scene import LONG, Scene
from tests.support.markdown import commands
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
PAGE = "docs/howto/stock-worker.md"
START = "celery -A proj worker "
KEPT = "messages of queue"


def test_a_canary_shares_a_queue_with_a_stock_worker_and_can_go_back(new_scene: NewScene) -> None:
    stock_args, canary_args = (
        command.removeprefix(START).split() for command in commands(PAGE) if START in command
    )
    # No message becomes visible again within the test unless a worker releases it.
    scene = new_scene(attributes=LONG)

    def start(args: list[str]) -> ProcessWorker:
        conf = {"worker_prefetch_multiplier": 1, "sqs_heartbeat_threshold": 599}
        return scene.worker("-c", "1", *args, flag=False, conf=conf)

    stock, canary = start(stock_args), start(canary_args)
    assert KEPT in canary.logs()
    assert KEPT not in stock.logs()

    # Each has room for one.
    scene.send("hold", "a")
    scene.send("hold", "b")
    assert len({note.pid for note in scene.wait_for_notes("start", 2)}) == 2
    for worker in (stock, canary):
        assert "hold[" in worker.logs()
    # Of the two messages, only the canary's is extended.
    scene.wait_until(lambda: extensions(scene))
    scene.send("work", "c")

    # Back: the canary lets its task end, and is started without the flag.
    canary.kill(signal.SIGTERM)
    canary.wait_for_log("Warm shutdown")
    scene.let_end("a")
    scene.let_end("b")
    assert canary.wait_for_exit() == 0
    after = start(stock_args)
    assert KEPT not in after.logs()
    scene.send("work", "d")
    scene.wait_for_notes("end", 4)
    scene.wait_until_empty()
    assert scene.keys("start") == scene.keys("end") == ["a", "b", "c", "d"]
