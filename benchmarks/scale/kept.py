"""What a keeper has done and used."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.scale.adapters import TERMS

#: How often a lease is extended, in seconds.
CYCLE = TERMS.visibility_timeout - TERMS.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a keeper has done and used in one round.

    Attributes:
        leases: How many leases it has.
        cpu: CPU seconds of the process in the round.
        seconds: The length of the round.
        resident: The growth of the process for each lease, in bytes.
        calls: How many calls it made in the round.
        extended: How many extensions were confirmed.
        late: How many of them when less than half of the threshold was left.
        expired: How many leases expired.
    """

    leases: int
    cpu: float
    seconds: float
    resident: float
    calls: int
    extended: int
    late: int
    expired: int

    @property
    def per_extension(self) -> float:
        """The CPU seconds of an extension."""
        return self.cpu / self.extended

    @property
    def share(self) -> float:
        """The share of a core in percent, at the rate that this many leases need."""
        return 100 * self.per_extension * self.leases / CYCLE

    @property
    def call_ms(self) -> float:
        """The CPU ms of a call, with all that the keeper does for it."""
        return 1000 * self.cpu / self.calls
