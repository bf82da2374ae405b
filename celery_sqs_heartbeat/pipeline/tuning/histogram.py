"""A log-histogram on the driver: what is known of spans, some of which still last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from celery_sqs_heartbeat.pipeline.tables.bins import bin_of, middle_of

#: Below this a share is a rounding error.
_TINY = 1e-12


@dataclass(frozen=True)
class Histogram:
    """Spans by bin. Those that still went on when they were seen last are `censored`.

    Shares are Kaplan and Meier's estimate: one that is censored counts among those that
    reached its bin, and takes no side on what became of it later.
    """

    spans: Mapping[int, int] = field(default_factory=dict)
    censored: Mapping[int, int] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """How many have a known end."""
        return sum(self.spans.values())

    @property
    def count(self) -> int:
        """How many there are, censored ones among them."""
        return self.ended + sum(self.censored.values())

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(_sum(self.spans, other.spans), _sum(self.censored, other.censored))

    def shares(self) -> Iterator[tuple[int, float]]:
        """Return each bin with the share of spans that end in it.

        What outlives the last end that was seen has no bin: the shares then sum to less than 1.
        """
        at_risk, alive = self.count, 1.0
        for number in sorted(self.spans.keys() | self.censored.keys()):
            ended = self.spans.get(number, 0)
            share = alive * ended / at_risk
            if ended:
                yield number, share
            alive -= share
            at_risk -= ended + self.censored.get(number, 0)

    @cached_property
    def distribution(self) -> Sequence[tuple[float, float]]:
        """Spans in microseconds and their shares, which sum to 1.

        What outlives the last end that was seen is taken to end where the last was seen. A replay
        looks at them once for each candidate.
        """
        found = [(middle_of(number), share) for number, share in self.shares()]
        rest = 1 - sum(share for _, share in found)
        if self.count and rest > _TINY:
            last = max(self.spans.keys() | self.censored.keys())
            found.append((middle_of(last), rest))
        return found

    def quantile(self, part: float) -> float | None:
        """Return the span, in microseconds, that such a part of all do not outlast.

        It is within 1 %. None where no end was seen that late.
        """
        sum_of_shares = 0.0
        for number, share in self.shares():
            sum_of_shares += share
            if sum_of_shares >= part - _TINY:
                return middle_of(number)
        return None

    def mean(self) -> float:
        """Return the mean span in microseconds; too little where some are censored."""
        return sum(span * share for span, share in self.distribution)

    def beyond(self, span_us: float) -> int:
        """Return how many are in later bins than a span of so many microseconds."""
        limit = bin_of(span_us)
        both = (*self.spans.items(), *self.censored.items())
        return sum(number for bin_, number in both if bin_ > limit)

    def longest(self) -> float:
        """Return the longest, in microseconds; 0 where there is none."""
        known = self.spans.keys() | self.censored.keys()
        return middle_of(max(known)) if known else 0.0


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}
