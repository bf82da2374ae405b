"""Ways for a task to end that are neither a result nor an `Exception` like any other."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn


class Custom(BaseException):
    """Not an `Exception`."""


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__


class UnprintableBase(BaseException):
    __repr__ = __str__ = Unprintable.__repr__


def _raising(error: Callable[[], BaseException]) -> Callable[[], NoReturn]:
    def end() -> NoReturn:
        raise error()

    return end


def _kill_greenlet() -> None:
    green = _green_library()
    # By another greenlet, as a library would.
    green.spawn(green.kill, green.getcurrent())
    green.sleep(60)


def _time_out() -> None:
    green = _green_library()
    with green.Timeout(0.01):
        green.sleep(60)


def _green_library() -> Any:
    # The library with which Celery replaced this worker's threads.
    return importlib.import_module("eventlet" if "eventlet.patcher" in sys.modules else "gevent")


#: How a task may end in any pool.
ENDS: dict[str, Callable[[], object]] = {
    "exit": sys.exit,
    "interrupt": _raising(KeyboardInterrupt),
    "generator exit": _raising(GeneratorExit),
    "cancelled": _raising(asyncio.CancelledError),
    "memory": _raising(MemoryError),
    "custom": _raising(Custom),
    "unpicklable": _raising(Unpicklable),
    "unprintable": _raising(Unprintable),
    "unprintable base": _raising(UnprintableBase),
}
#: How only greenlets may end.
GREEN_ENDS: dict[str, Callable[[], object]] = {"killed": _kill_greenlet, "timeout": _time_out}
