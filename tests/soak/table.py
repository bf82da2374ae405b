"""What the audit knows of the product: the delays that it promises, and the causes it may have.

The audit must not take a number from the product: then a fault of the product would excuse itself.
`test_world.py` compares the delays with the documents and with the product.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A failed extension is repeated within this fraction of the time that its lease has left
#: (docs/internals/leases.md, "When calls are made").
PAUSE_PART = 1 / 8
#: If a worker is gone, its keeper releases its messages within so many seconds
#: (docs/internals/keeper.md, "When a process dies").
RELEASE_SECONDS = 2.0
#: A keeper that has died is replaced within so many seconds (ibid.).
REPLACEMENT_SECONDS = 1.0
#: A keeper that shows no activity for so many seconds is killed and replaced (ibid.).
HANG_SECONDS = 1.0
#: The same for a keeper that has only started (ibid.).
START_HANG_SECONDS = 3.0
#: With visibility timeouts of so many seconds or more, no lease is lost when a keeper dies (ibid.).
SAFE_TIMEOUT = 5
#: How long a worker waits before it replaces its keeper, in seconds, after so many deaths (ibid.).
REPLACEMENT_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def client_patience(threshold: float) -> float:
    """Return how long a client waits for an answer, in seconds.

    Three tenths of the threshold, 0.5 to 5 s (docs/internals/keeper.md, "Calls that never return").
    """
    return min(max(threshold * 0.3, 0.5), 5.0)


def call_patience(threshold: float) -> float:
    """Return how long a lease waits for the answer to a call that may never return, in seconds.

    This is a third of the threshold, 0.6 to 20 s (docs/internals/keeper.md, "Calls that never
    return").
    """
    return min(max(threshold / 3, 0.6), 20.0)


@dataclass(frozen=True, slots=True)
class Row:
    """A cause of redeliveries that could not be avoided. A comment says why it could not.

    Attributes:
        where: The heading of a document, or the test, that shows it.
        share: The largest part of a soak's extra receives that it may explain, 0 to 1. Unless a
            comment says otherwise, this is three times the highest share in six soaks (75 s with
            the seeds 1, 2, 3, 5 and 6, and 240 s with 4), but at least 5 or 10 % and at most 60 %.
    """

    name: str
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


_DEAD_LETTERS = "docs/howto/dead-letters.md#what-fails-and-what-is-deleted"
_SHUTDOWN = "docs/howto/shutdown.md#what-the-worker-does"
_DEATH = "docs/internals/keeper.md#when-a-process-dies"
_MACHINE = "docs/internals/tests.md#nothing-rests-on-a-machines-speed"
_OLDER = "docs/internals/leases.md#when-an-older-handle-is-still-in-use"

# If so configured, a task that fails, rejects or cannot send its retry is redelivered. A task that
# fails on purpose writes that into the ledger itself, so the product cannot overuse this cause. It
# explains half of a soak's extra receives, and more if little harm is done.
RELEASED_BY_TASK = Row("its task failed or rejected it", _DEAD_LETTERS, 0.9)
# Every kind of shutdown releases all messages that wait, and each soak ends with the shutdown of
# all its workers. A worker without a prefetch limit can cause half of the extra receives alone.
WAITED_IN_SHUTDOWN = Row("it waited in a shutdown", _SHUTDOWN, 0.75)
# A cold shutdown releases running messages at once, a soft one after its timeout.
CUT_OFF_BY_SHUTDOWN = Row("it was cut off by a shutdown", _SHUTDOWN, 0.1)
# One failure releases all messages of the group that its worker holds behind: up to nine others.
GROUP_STOPPED = Row(
    "a message ahead of it was released or lost",
    "tests/unit/test_group_order.py#those behind a released message are released first",
    0.5,
)
# If a worker is gone, its keeper releases its messages within two seconds.
KILLED = Row("its worker was killed", _DEATH, 0.6)
# A new keeper needs a second, and longer after a hang or after several deaths. Three times the
# highest share in six soaks on a machine whose processes needed six times its cores. A worker holds
# as many as forty messages, some from queues with timeouts of 3 and 4 s.
KEEPER_DOWN = Row("there was no keeper", _DEATH, 0.3)
# A release that may have been sent is not repeated: others may have the message.
RELEASE_CUT = Row("its keeper died as it released it", _DEATH, 0.05)
# Bodies die with a keeper: the next one releases what its worker has not got.
NOT_HANDED_OVER = Row("its keeper died before it was handed over", _DEATH, 0.1)
# What SQS puts into the polls of a dead keeper is hidden for one visibility timeout.
LEFT_IN_POLL = Row("its keeper died with a poll open", _DEATH, 0.2)
# The message of a task whose process dies is released (task_reject_on_worker_lost).
POOL_KILLED = Row("its pool process was killed", _DEAD_LETTERS, 0.1)
# A worker that SIGSTOP has stopped makes no call until SIGCONT.
STOPPED = Row("its worker was stopped", "docs/motivation.md#why-it-is-not-a-timer", 0.6)
# A thread that waits for a CPU makes no call. The kernel counts for how long. We saw none. A busier
# machine has some.
STARVED = Row("the machine was too busy", _MACHINE, 0.1)
# It is measured in the soak's own process, where none of the product runs, so the product can't
# overuse this cause. One stall of five seconds ends all leases of the queues with short timeouts.
STALLED = Row("the machine stalled", _MACHINE, 0.9)
# A closed channel releases messages that have not started or that Celery cancels.
DISCONNECTED = Row("its worker lost the connection", "docs/internals/worker.md#reconnect", 0.5)
# If SQS is unreachable for longer than the threshold, leases expire.
REFUSED = Row("SQS refused or lost its calls", "docs/operations.md#incidents", 0.2)
# Others may have a message that arrived late. It is neither leased nor run.
UNREAD = Row("it was not read in time", "docs/internals/leases.md#what-is-known-of-a-lease", 0.35)
# A release is tried until the lease expires. After that, others may have the message.
LEFT_TO_TIMEOUT = Row(
    "its release came too late, or failed",
    "docs/internals/leases.md#when-sqs-does-not-do-what-was-asked",
    0.6,
)
# Standard queues accept stale handles, and no one can cancel a request on its way.
DELAYED = Row("a release was delayed", _OLDER, 0.05)

TABLE = tuple(each for each in [*globals().values()] if isinstance(each, Row))
