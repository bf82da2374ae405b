"""The release policies that have a name: a receive count in, a delay out."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS

#: Receives after which nothing grows any more: a whole number may be too large to calculate with.
_MOST_STEPS = 10**9
#: Doublings after which any delay is longer than SQS allows.
_MOST_DOUBLINGS = 64


class Verdict(enum.Enum):
    """What is to become of a message, instead of a release after some seconds."""

    #: Let the lease expire: the message comes back when its visibility timeout ends.
    KEEP = "keep"
    #: As if nothing were set: at once, or ever later on a queue without a dead-letter queue.
    USUAL = "usual"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy:
    """For how long a message is hidden after its task failed. Times in seconds.

    Attributes:
        first: After the first receive.
        step: Added with each further receive.
        doubles: Whether it doubles with each further receive.
        jitter: Whether it is a random number in the upper half of that, so that messages which
            failed together do not come back together.
    """

    first: float
    step: float = 0.0
    doubles: bool = False
    most: float = MAX_VISIBILITY_SECONDS
    jitter: bool = False

    @classmethod
    def fixed(cls, seconds: float) -> ReleasePolicy:
        """Return the policy that is the same each time."""
        return cls(first=seconds)

    # `max` as users write it.
    @classmethod
    def linear(cls, step: float, max: float = MAX_VISIBILITY_SECONDS) -> ReleasePolicy:  # noqa: A002
        """Return the policy of `step` seconds, then twice as many, three times as many."""
        return cls(first=step, step=step, most=max)

    @classmethod
    def exponential(
        cls,
        base: float = 2,
        max: float = 900,  # noqa: A002
        jitter: bool = True,
    ) -> ReleasePolicy:
        """Return the policy of `base` seconds, doubled with each further receive.

        So `base` is the first delay, not what is raised to a power: 5, 10, 20, ... for 5.
        """
        return cls(first=base, doubles=True, most=max, jitter=jitter)

    def delay(self, receive_count: int, draw: float) -> float:
        """Return the release delay, in seconds.

        Args:
            receive_count: How often SQS had delivered the message.
            draw: 0 to 1, random: for the jitter.
        """
        further = min(max(receive_count, 1) - 1, _MOST_STEPS)
        seconds = self.first + self.step * further
        if self.doubles:
            seconds *= 2.0 ** min(further, _MOST_DOUBLINGS)
        seconds = min(seconds, self.most)
        return seconds * (0.5 + 0.5 * draw) if self.jitter else seconds


#: At once, also where a message that always fails would come back for ever.
IMMEDIATE = ReleasePolicy.fixed(0)
