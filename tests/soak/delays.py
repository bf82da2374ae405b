"""The delays that our documents promise, as numbers of the soak.

The audit must not take them from the product: then a fault of the product would excuse itself.
`test_delays.py` compares these numbers with the documents and with the product.
"""

from __future__ import annotations

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


def replacement_pause(deaths: int) -> float:
    """Return how long a worker waits before it replaces its keeper, in seconds (ibid.).

    Args:
        deaths: How many keepers it has lost before.
    """
    return (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)[min(deaths, 6)]


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
