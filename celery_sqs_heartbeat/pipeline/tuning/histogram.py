"""A log-histogram on the driver, of durations some of which have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from celery_sqs_heartbeat.pipeline.tables.bins import bin_of, middle_of

#: A share below this is a rounding error.
_TINY = 1e-12


@dataclass(frozen=True)
class Histogram:
    """Durations by bin. Those that had not ended when they were seen last are `censored`.

    Shares are the Kaplan-Meier estimate: a censored one counts among those that reached its bin,
    without an assumption about its end.
    """

    spans: Mapping[int, int] = field(default_factory=dict)
    censored: Mapping[int, int] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """How many have a known end."""
        return sum(self.spans.values())

    @property
    def count(self) -> int:
        """How many there are, including censored ones."""
        return self.ended + sum(self.censored.values())

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(_sum(self.spans, other.spans), _sum(self.censored, other.censored))

    def shares(self) -> Iterator[tuple[int, float]]:
        """Return each bin with the share of durations that end in it.

        Durations longer than the last known end have no bin. Then the shares sum to less than 1.
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
        """Durations in microseconds and their shares, which sum to 1.

        Durations longer than the last known end are assumed to end in the last bin. It is cached,
        because the replay uses it for each candidate.
        """
        found = [(middle_of(number), share) for number, share in self.shares()]
        rest = 1 - sum(share for _, share in found)
        if self.count and rest > _TINY:
            last = max(self.spans.keys() | self.censored.keys())
            found.append((middle_of(last), rest))
        return found

    def quantile(self, part: float) -> float | None:
        """Return the duration, in microseconds, that this part of all do not exceed.

        It is within 1 %. None if no end was seen that late.
        """
        sum_of_shares = 0.0
        for number, share in self.shares():
            sum_of_shares += share
            if sum_of_shares >= part - _TINY:
                return middle_of(number)
        return None

    def mean(self) -> float:
        """Return the mean duration in microseconds. It is too small if some are censored."""
        return sum(span * share for span, share in self.distribution)

    def beyond(self, span_us: float) -> int:
        """Return how many are in later bins than a duration in microseconds."""
        limit = bin_of(span_us)
        both = (*self.spans.items(), *self.censored.items())
        return sum(number for bin_, number in both if bin_ > limit)

    def longest(self) -> float:
        """Return the longest, in microseconds; 0 if there is none."""
        known = self.spans.keys() | self.censored.keys()
        return middle_of(max(known)) if known else 0.0


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}
