"""What our documents promise of delays, in the soak's own numbers.

The audit must not ask the product what is right: a fault there would excuse itself.
`test_delays.py` holds these numbers against the documents and against the product.
"""

from __future__ import annotations

#: A failed extension is repeated within this part of the time that its lease has left
#: (docs/internals/leases.md, "When calls are made").
PAUSE_PART = 1 / 8

#: A worker that is gone has its messages released within so many seconds
#: (docs/internals/keeper.md, "When a process dies").
RELEASE_SECONDS = 2.0
#: A keeper that has died is replaced within so many seconds, and so is one that hangs when it has
#: done nothing for as long (ibid.).
REPLACEMENT_SECONDS = 1.0
HANG_SECONDS = 1.0
#: As it starts (ibid.).
START_HANG_SECONDS = 3.0
#: With this much as a visibility timeout, or more, the death of a keeper costs no lease (ibid.).
SAFE_TIMEOUT = 5


def replacement_pause(deaths: int) -> float:
    """Return how long a worker waits before it replaces its keeper, in seconds (ibid.).

    Args:
        deaths: How many keepers it has lost before.
    """
    return (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)[min(deaths, 6)]


def client_patience(threshold: float) -> float:
    """Return how long a client waits for an answer, in seconds.

    Half of the threshold, 0.5 to 5 s (docs/internals/keeper.md, "Calls that never return").
    """
    return min(max(threshold / 2, 0.5), 5.0)


def call_patience(threshold: float) -> float:
    """Return how long a lease waits for the answer to a call that may never return, in seconds.

    A third of the threshold. But not before the client could end the call by itself, after 0.6 to
    6 s, and after 20 s at the latest (docs/internals/keeper.md, "Calls that never return").
    The client may take half of the threshold, and the leases wait for a fifth of that longer.
    """
    client = min(max(threshold * 0.6, 0.6), 6.0)
    return min(max(threshold / 3, client), 20.0)


def failure_delay(receive_count: int, visibility_timeout: int) -> int:
    """Return for how long a failed message is hidden where there are no dead letters, in seconds.

    1, 2, 4, ... s by receive, up to the visibility timeout (docs/settings.md, "After a failure").
    """
    return min(1 << (receive_count - 1), visibility_timeout)
