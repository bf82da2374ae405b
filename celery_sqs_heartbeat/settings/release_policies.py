"""The release policies that have a name: a receive count in, a delay out."""

from __future__ import annotations

import random
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS

#: Receives after which a delay stops growing: larger integers may not convert to a float.
_MOST_STEPS = 10**9
#: Doublings after which any delay is longer than SQS allows.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy:
    """How long a message is hidden after its task failed. Times in seconds.

    Attributes:
        first: The delay after the first receive.
        step: Added with each further receive.
        doubles: Whether the delay doubles with each further receive.
        jitter: Whether to draw a random delay from the upper half of that. Messages that failed
            together then do not return together.
        at_once: After how many of the first receives the message is released at once.
    """

    first: float
    step: float = 0.0
    doubles: bool = False
    most: float = MAX_VISIBILITY_SECONDS
    jitter: bool = False
    at_once: int = 0

    @classmethod
    def fixed(cls, seconds: float) -> ReleasePolicy:
        """Return the policy with the same delay each time."""
        return cls(first=seconds)

    # Users write `max`.
    @classmethod
    def linear(cls, step: float, max: float = MAX_VISIBILITY_SECONDS) -> ReleasePolicy:  # noqa: A002
        """Return the policy of `step` seconds, then twice that, three times that and so on."""
        return cls(first=step, step=step, most=max)

    @classmethod
    def exponential(
        cls,
        base: float = 2,
        max: float = 900,  # noqa: A002
        jitter: bool = True,
    ) -> ReleasePolicy:
        """Return the policy of `base` seconds, doubled with each further receive.

        `base` is the first delay, not the base of a power: 5, 10, 20, ... for 5.
        """
        return cls(first=base, doubles=True, most=max, jitter=jitter)

    def __call__(self, receive_count: int) -> float:
        """Return a release delay, as a user's function does."""
        return self.delay(receive_count, random.random())

    def delay(self, receive_count: int, draw: float) -> float:
        """Return the release delay, in seconds.

        Args:
            receive_count: How often SQS has delivered the message.
            draw: A random number from 0 to 1, for the jitter.
        """
        further = min(max(receive_count, 1) - 1, _MOST_STEPS) - self.at_once
        if further < 0:
            return 0.0
        seconds = self.first + self.step * further
        if self.doubles:
            seconds *= 2.0 ** min(further, _MOST_DOUBLINGS)
        seconds = min(seconds, self.most)
        return seconds * (0.5 + 0.5 * draw) if self.jitter else seconds


def keep(receive_count: int) -> None:
    """Let the lease expire: the message becomes visible when its visibility timeout ends."""


#: At once, even if a message that always fails would then repeat indefinitely.
IMMEDIATE = ReleasePolicy.fixed(0)
#: The default. One failure may be an accident, and the next try should not wait for it. After more,
#: something is down: a message must not use up its receives in less time than a restart takes.
BACKOFF = ReleasePolicy(first=2, doubles=True, most=300, jitter=True, at_once=1)
