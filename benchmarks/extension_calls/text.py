"""What the page says about `extension-calls`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.extension_calls.counts import OURS_WITH_5, TIMEOUTS, Counts
from benchmarks.extension_calls.dotnet import DOTNET
from benchmarks.frame.part import Spread, digits

ABOUT = """\
How many calls it takes to keep messages extended, beside the algorithms of other libraries. All
play the same trace on a clock that is moved: messages arrive at random (Poisson), one to a
receive, and their tasks take 300 s on average (lognormal, median 182 s). Ours is the keeper's
real engine. The others are written after the source of AWS Message Processing Framework for .NET
1.3.0, google-cloud-pubsub 2.35.0, sqs-consumer 15.0.3, MassTransit 8.5.8 and taskiq-aio-sqs
2.1.1. All have their defaults. sqs-consumer has none for its interval and gets ours, two thirds
of the timeout. Pub/Sub's requests become calls for ten messages here.

**The bound** is the number of full batches of ten that extend each message exactly once per
*period*: the longest time between two extensions that an algorithm plans, which is the
visibility timeout less its threshold. A value can be slightly below 1, because the last period
of a task needs no extension."""
NOTES = (
    """\
A call that is made anyway is filled up with the messages that are due next, so messages that
arrived apart are later due together. .NET sends what is due in the current second, and the
timers of the last three send one message a call.""",
    """\
By default, taskiq-aio-sqs ends after 100 extensions, which is 25 minutes at a timeout of 30 s,
and the messages of longer tasks become visible while they run.""",
    """\
This does not show receives and deletes, nor lost, throttled and slow calls: each is answered
after 20 ms.""",
)


def on_safety(counts: Counts) -> str:
    """Say what the threshold costs, with the largest and the smallest trace."""
    few, many = counts.sizes[0], counts.sizes[-1]
    shortest, longest = TIMEOUTS
    least, most = _times_as_many(counts, shortest, few), _times_as_many(counts, longest, many)
    return f"""\
Fewer calls must not come from extending late: our default threshold, a third of the timeout, costs
calls and buys time for retries. With {few} messages and a timeout of
{shortest} s, .NET makes {least[0]} times as many calls as our defaults, and {least[1]} times as
many as this package with .NET's threshold of 5 s. With {many:,} messages and a timeout of
{longest} s, it makes {most[0]} and {most[1]} times as many."""


def _times_as_many(counts: Counts, timeout: int, size: int) -> tuple[str, str]:
    """Return .NET's calls as a multiple of ours, with our default threshold and with its own."""
    theirs, own = (counts.rounds[way, timeout, size] for way in (DOTNET, OURS_WITH_5))
    same = [a.tally.calls / b.tally.calls for a, b in zip(theirs, own, strict=True)]
    return median(counts.to_ours(DOTNET, timeout, size)), median(same)


def median(samples: Sequence[float]) -> str:
    """Return the median of a figure's rounds as text."""
    return digits(Spread.of(samples).median)
