"""The messages that a dead worker leaves behind, and what must happen to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.lease import Goal, Lease
from tests.simulation.outage import EXCUSE as HANGING
from tests.simulation.process import KeeperProcess

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: A keeper releases a dead worker's messages after this many seconds at the latest.
RELEASED_AFTER = 2.0


def expect_releases(
    world: World, worker: SimulatedWorker, process: KeeperProcess, leases: Iterable[Lease]
) -> None:
    """Schedule a check that a keeper releases the messages that its worker held when it died."""
    # Before its last receive, a message waits for the end of open polls.
    held = [
        (lease.message_id, lease.receipt_handle)
        for lease in leases
        if lease.goal is Goal.HOLD and not lease.has_few_receives
    ]
    since = world.clock()

    def check() -> None:
        if not process.is_up or worker.asleep_until > since:
            return
        for message_id, handle in held:
            _check(message_id, handle)

    def _check(message_id: str, handle: str) -> None:
        truth = world.truth[message_id]
        message = truth.message
        if message is None or message.handle != handle or message.visible_at <= world.clock():
            return
        calls = process.calls
        is_explained = (
            # We can't know whether it is still ours.
            message_id in process.given_up
            # Its receive was in a frame that was written only in part.
            or not process.knows(handle)
            # Not answered yet, or behind a call that is not answered.
            or calls.has_tried_to_release(handle)
            # The first of a group is released last. The others are checked like any message.
            or process.releases_others_first(handle)
            or HANGING in truth.excuses
            # The next call of its queue waits for a while.
            or truth.queue.url in calls.refused
        )
        if is_explained:
            return
        world.fail(f"10: {message_id} is not released, but its worker {worker.name} is dead")

    world.clock.at(since + RELEASED_AFTER, check)
