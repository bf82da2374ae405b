"""An event loop that other threads can wake, although it has nothing to read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.asynchronous import Hub

from celery_sqs_heartbeat.transport.wakeable_loop import make_wakeable

pytestmark = pytest.mark.skipif(
    not hasattr(Hub, "_on_wakeup"), reason="before kombu 5.7, no thread can wake a loop"
)


@pytest.fixture
def hub() -> Iterator[Any]:
    made = Hub()
    yield made
    made.close()


class Slept(Exception):
    """The loop would have slept without waiting for events."""


def refuse_to_sleep(_: float) -> None:
    raise Slept


def run_until_called(hub: Any) -> None:
    """Run the loop until it has made a call of another thread."""
    called: list[bool] = []
    loop = hub.create_loop(sleep=refuse_to_sleep)
    caller = threading.Timer(0.05, lambda: hub.call_soon(called.append, True))
    caller.start()
    while not called:
        next(loop)
    caller.join()


def test_without_anything_to_read_kombus_loop_sleeps(hub: Any) -> None:
    """If this fails, kombu has changed, and `make_wakeable` may not be needed any more."""
    with pytest.raises(Slept):
        next(hub.create_loop(sleep=refuse_to_sleep))


def test_a_loop_with_nothing_to_read_waits_for_the_calls_of_other_threads(hub: Any) -> None:
    make_wakeable(hub)
    run_until_called(hub)


def test_a_loop_that_was_reset_can_be_made_wakeable_again(hub: Any) -> None:
    make_wakeable(hub)
    hub.reset()
    make_wakeable(hub)
    run_until_called(hub)


def test_a_loop_that_has_something_to_read_is_left_as_it_is(hub: Any) -> None:
    make_wakeable(hub)
    before = dict(hub.readers)
    make_wakeable(hub)
    assert hub.readers == before
