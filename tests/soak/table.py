"""Every cause that the audit accepts for a redelivery, with its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cause of redeliveries that could not be avoided.

    Attributes:
        source: Why it could not be avoided.
        where: The heading of a document, or the test, that shows it.
        share: The largest part of a soak's extra receives that it may explain, 0 to 1. Unless a
            comment says otherwise, this is three times the highest share in six soaks (75 s with
            the seeds 1, 2, 3, 5 and 6, and 240 s with 4), but at least 5 or 10 % and at most 60 %.
    """

    name: str
    source: str
    where: str
    share: float


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one message was received again: a row of the table, and a text."""

    row: Row
    text: str

    def __str__(self) -> str:
        return self.text

    def but(self, obstacle: str) -> Cause:
        """Return why a message that should have been released had to wait for its timeout."""
        return Cause(LEFT_TO_TIMEOUT, f"{self.text}, {obstacle}")


# A task that fails on purpose writes that into the ledger itself, so the product cannot overuse
# this cause. It explains half of a soak's extra receives, and more if little harm is done.
RELEASED_BY_TASK = Row(
    name="its task failed or rejected it",
    source="If so configured, a task that fails, rejects or cannot send its retry is redelivered.",
    where="docs/howto/dead-letters.md#what-fails-and-what-is-deleted",
    share=0.9,
)
# A shutdown releases all messages that wait, and each soak ends with the shutdown of all its
# workers. A worker without a prefetch limit can cause half of the extra receives alone.
WAITED_IN_SHUTDOWN = Row(
    name="it waited in a shutdown",
    source="Every kind of shutdown releases waiting messages at once.",
    where="docs/howto/shutdown.md#what-the-worker-does",
    share=0.75,
)
CUT_OFF_BY_SHUTDOWN = Row(
    name="it was cut off by a shutdown",
    source="A cold shutdown releases running messages at once, a soft one after its timeout.",
    where="docs/howto/shutdown.md#what-the-worker-does",
    share=0.1,
)
# One failure releases all messages of the group that its worker holds: up to nine others.
GROUP_STOPPED = Row(
    name="a message ahead of it was released or lost",
    source="If a worker releases or loses a message, it releases those behind it, too.",
    where="tests/unit/test_group_order.py#test_releasing_a_message_releases_those_behind_it_first",
    share=0.5,
)
KILLED = Row(
    name="its worker was killed",
    source="If a worker is gone, its keeper releases its messages within two seconds.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.6,
)
# Three times the highest share in six soaks on a machine whose processes needed six times its
# cores. A worker holds as many as forty messages, some from queues with timeouts of 3 and 4 s.
KEEPER_DOWN = Row(
    name="there was no keeper",
    source="A new keeper needs a second, and longer after a hang or after several deaths.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.3,
)
RELEASE_CUT = Row(
    name="its keeper died as it released it",
    source="A release that may have been sent is not repeated: others may have the message.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.05,
)
NOT_HANDED_OVER = Row(
    name="its keeper died before it was handed over",
    source="Bodies die with a keeper: the next one releases what its worker has not got.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.1,
)
LEFT_IN_POLL = Row(
    name="its keeper died with a poll open",
    source="What SQS puts into the polls of a dead keeper is hidden for one visibility timeout.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.2,
)
POOL_KILLED = Row(
    name="its pool process was killed",
    source="The message of a task whose process dies is released (task_reject_on_worker_lost).",
    where="docs/howto/dead-letters.md#what-fails-and-what-is-deleted",
    share=0.1,
)
BROKEN = Row(
    name="its worker's pool was broken",
    source="A worker whose pool accepts no job releases the waiting messages, and exits.",
    where="docs/internals/transport.md#messages-that-cannot-be-delivered",
    share=0.1,
)
STOPPED = Row(
    name="its worker was stopped",
    source="A worker that SIGSTOP has stopped makes no call until SIGCONT.",
    where="docs/motivation.md#why-it-is-not-a-timer",
    share=0.6,
)
# We saw none. A busier machine has some.
STARVED = Row(
    name="the machine was too busy",
    source="A thread that waits for a CPU makes no call. The kernel counts for how long.",
    where="docs/internals/tests.md#nothing-rests-on-a-machines-speed",
    share=0.1,
)
# It is measured where none of the product runs, so the product can't overuse this cause. One stall
# of five seconds ends all leases of the queues with the shortest timeouts.
STALLED = Row(
    name="the machine stalled",
    source="A machine that stalls makes no call. The soak's own process measures for how long.",
    where="docs/internals/tests.md#nothing-rests-on-a-machines-speed",
    share=0.9,
)
DISCONNECTED = Row(
    name="its worker lost the connection",
    source="A closed channel releases messages that have not started or that Celery cancels.",
    where="docs/internals/worker.md#reconnect",
    share=0.5,
)
REFUSED = Row(
    name="SQS refused or lost its calls",
    source="If SQS is unreachable for longer than the threshold, leases expire.",
    where="docs/operations.md#incidents",
    share=0.2,
)
UNREAD = Row(
    name="it was not read in time",
    source="Others may have a message that arrived late. It is neither leased nor run.",
    where="docs/internals/leases.md#what-is-known-of-a-lease",
    share=0.35,
)
LEFT_TO_TIMEOUT = Row(
    name="its release came too late, or failed",
    source="A release is tried until the lease expires. After that, others may have the message.",
    where="docs/internals/leases.md#when-sqs-does-not-do-what-was-asked",
    share=0.6,
)
DELAYED = Row(
    name="a release was delayed",
    source="Standard queues accept stale handles, and no one can cancel a request on its way.",
    where="docs/internals/leases.md#when-an-older-handle-is-still-in-use",
    share=0.05,
)
DISTURBED = Row(
    name="another worker's late extension cut it short",
    source="A worker extends an expired lease for one more timeout, though others may have it.",
    where="docs/internals/leases.md#when-an-older-handle-is-still-in-use",
    share=0.05,
)
BATCH_LOST = Row(
    name="a message of its batch was lost",
    source="A batch that loses a message while it waits does not run. The others are released.",
    where="tests/unit/test_batches.py#"
    "test_a_batch_whose_messages_were_released_while_it_waited_does_not_run",
    share=0.05,
)

TABLE = (
    RELEASED_BY_TASK,
    WAITED_IN_SHUTDOWN,
    CUT_OFF_BY_SHUTDOWN,
    GROUP_STOPPED,
    KILLED,
    KEEPER_DOWN,
    RELEASE_CUT,
    NOT_HANDED_OVER,
    LEFT_IN_POLL,
    POOL_KILLED,
    BROKEN,
    STOPPED,
    STARVED,
    STALLED,
    DISCONNECTED,
    REFUSED,
    UNREAD,
    LEFT_TO_TIMEOUT,
    DELAYED,
    DISTURBED,
    BATCH_LOST,
)
