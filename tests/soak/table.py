"""Why a message may be received again: every cause that the audit knows, and its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cause that could not be helped.

    Attributes:
        source: What makes us believe that it could not.
        where: The heading of the document, or the test, that shows it.
        share: The largest part of a soak's extra receives that it may explain, 0 to 1. Where no
            comment says otherwise, three times the most of six soaks (75 s with the seeds 1, 2,
            3, 5 and 6, and 240 s with 4), but at least 5 or 10 % and at most 60 %.
    """

    name: str
    source: str
    where: str
    share: float


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one message was received again: a row of the table, and what happened in words."""

    row: Row
    text: str

    def __str__(self) -> str:
        return self.text

    def but(self, obstacle: str) -> Cause:
        """Return why a message that was to be given back for this waited for its timeout."""
        return Cause(LEFT_TO_TIMEOUT, f"{self.text}, {obstacle}")


# A task that fails on purpose says so in the ledger itself, so the product can't overuse it. Half
# of a soak's extra receives are asked for so, and more where little harm is done.
RELEASED_BY_TASK = Row(
    name="its task gave it back",
    source="What fails, is rejected or can't send its retry stays in the queue, as is set.",
    where="docs/howto/dead-letters.md#what-fails-and-what-is-deleted",
    share=0.9,
)
# A shutdown gives back all that waits, and each soak ends with the shutdown of all its workers.
# One that may hold any number of messages makes a half of the extra receives by itself.
WAITED_IN_SHUTDOWN = Row(
    name="it waited in a shutdown",
    source="What waits is given back at once, in every kind of shutdown.",
    where="docs/howto/shutdown.md#what-the-worker-does",
    share=0.75,
)
CUT_OFF_BY_SHUTDOWN = Row(
    name="it was cut off by a shutdown",
    source="A cold shutdown gives back what runs, a soft one does so after its time.",
    where="docs/howto/shutdown.md#what-the-worker-does",
    share=0.1,
)
# One failure takes along all that its worker holds of the group: up to nine messages.
GROUP_STOPPED = Row(
    name="a message ahead of it went back",
    source="What comes after a message of its group that goes back is released before it.",
    where="tests/unit/test_group_order.py#test_a_release_takes_along_what_is_behind_and_comes_last",
    share=0.5,
)
KILLED = Row(
    name="its worker was killed",
    source="The keeper of a worker that is gone releases what it held, within two seconds.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.6,
)
# Three times the most of six soaks on a machine whose processes wanted six times its cores. A
# worker holds up to forty messages, of queues with timeouts of 3 and 4 s among others.
KEEPER_DOWN = Row(
    name="there was no keeper",
    source="A new keeper takes a second, and more after a hang or when many have died.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.3,
)
RELEASE_CUT = Row(
    name="its keeper died as it released it",
    source="A release that may have been sent is not repeated: its message may be anyone's.",
    where="docs/internals/keeper.md#when-a-process-dies",
    share=0.05,
)
POOL_KILLED = Row(
    name="its pool process was killed",
    source="The message of a task whose process dies is released (task_reject_on_worker_lost).",
    where="docs/howto/dead-letters.md#what-fails-and-what-is-deleted",
    share=0.1,
)
BROKEN = Row(
    name="its worker's pool was broken",
    source="A worker whose pool takes no job gives back what waits, and ends.",
    where="docs/internals/transport.md#messages-that-cannot-be-delivered",
    share=0.1,
)
STOPPED = Row(
    name="its worker stood still",
    source="A worker that SIGSTOP has stopped makes no call until it goes on.",
    where="docs/motivation.md#why-it-is-not-a-timer",
    share=0.6,
)
# None was seen. A busier machine than ours has some.
STARVED = Row(
    name="the machine was too busy",
    source="A thread that waits for a CPU makes no call. The kernel counts for how long.",
    where="docs/internals/tests.md#nothing-rests-on-a-machines-speed",
    share=0.1,
)
DISCONNECTED = Row(
    name="its worker lost the connection",
    source="A closed channel gives back what has not started, and what Celery cancels.",
    where="docs/internals/worker.md#reconnect",
    share=0.5,
)
REFUSED = Row(
    name="SQS refused or lost its calls",
    source="While SQS can't be reached for longer than the threshold, leases run out.",
    where="docs/operations.md#incidents",
    share=0.2,
)
UNREAD = Row(
    name="it was not read in time",
    source="What was held up on the way may be anyone's. It is neither leased nor run.",
    where="docs/internals/leases.md#what-is-known-of-a-lease",
    share=0.6,
)
LEFT_TO_TIMEOUT = Row(
    name="it was given back too late, or in vain",
    source="A release is tried until the lease ends. After that its message may be anyone's.",
    where="docs/internals/leases.md#when-sqs-does-not-do-what-was-asked",
    share=0.6,
)
DELAYED = Row(
    name="a release was held up",
    source="SQS takes a stale handle on a standard queue, and nothing calls a request back.",
    where="docs/internals/leases.md#when-an-older-handle-is-still-in-use",
    share=0.05,
)
DISTURBED = Row(
    name="another's late extension cut it short",
    source="A lease is extended for one timeout after its end, though it may be another's by then.",
    where="docs/internals/leases.md#when-an-older-handle-is-still-in-use",
    share=0.05,
)
BATCH_LOST = Row(
    name="a message of its batch was lost",
    source="A batch that waits while it loses a message does not run. The others go back.",
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
    POOL_KILLED,
    BROKEN,
    STOPPED,
    STARVED,
    DISCONNECTED,
    REFUSED,
    UNREAD,
    LEFT_TO_TIMEOUT,
    DELAYED,
    DISTURBED,
    BATCH_LOST,
)
