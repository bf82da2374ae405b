"""The rules of extending, retrying and releasing: numbers in, numbers out."""

from __future__ import annotations

import math
from typing import Protocol

from celery_sqs_heartbeat.leases.calls import MAX_BATCH_ENTRIES
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS, Lease, LeaseTerms

#: First pause after a passing fault, in seconds. A dropped packet is over by then.
RETRY_SECONDS = 0.05
#: First pause after a throttle, in seconds: SQS asks for less load, not for haste.
THROTTLED_RETRY_SECONDS = 0.2
#: Longest pause between tries, in seconds.
MAX_RETRY_SECONDS = 5.0
#: Shortest pause between tries, in seconds, however close the expiry is.
MIN_RETRY_SECONDS = 0.02
#: A pause takes at most this part of the margin that is left, so that a lease in
#: trouble gets many tries before it expires rather than one long wait.
MARGIN_PARTS = 8
#: First and longest pause before a queue that refused a call is probed, in seconds. A policy that
#: is being replaced refuses for moments; changes take up to minutes to reach SQS.
PROBE_SECONDS = 0.2
MAX_PROBE_SECONDS = 10.0
#: The longest pause before a delete that was refused is tried again, in seconds. Every message
#: that is done is tried by itself, and there may be thousands.
MAX_REFUSED_DELETE_SECONDS = 30.0
#: A call may take this part of the smallest threshold in it before its leases join another: so
#: that two calls in a row may hang.
CALL_PART = 1 / 3
#: But no less than this part, up to so many seconds: botocore itself gives up reading after half
#: a threshold, 0.5 to 5 s, and what it leaves out, as name resolution and credentials, is meant.
SLOW_CALL_PART = 0.6
MIN_CALL_SECONDS = 0.6
MAX_SLOW_CALL_SECONDS = 6.0
#: Longest wait for the answer to a call, in seconds.
MAX_CALL_SECONDS = 20.0
#: Acks gather for at most this long, in seconds, to share one DeleteMessageBatch.
GATHER_SECONDS = 0.05
#: A keeper that ends waits this long for its deletes and releases to be confirmed, in seconds.
#: Half of Kubernetes' default grace period of 30 s (terminationGracePeriodSeconds): the other half
#: is for the tasks that run and for the journal's last segment.
FLUSH_SECONDS = 15.0

#: What a message costs that waits for its task at SQS: a release and one more receive, as much as
#: two extensions. Calls are shared alike: ten to a call at best, one at worst.
PARKING_EXTENSIONS = 2
#: A wait up to this long is no reason to spend a receive of the message, in seconds.
SHORTEST_HOLD_ETA = 60.0
#: A wait below this is no longer one in the whole seconds of a release, in seconds.
SHORTEST_PARKING = 1.0
#: A parked message has at least so many receives left: the one that its task runs in, and another
#: for when that fails or its worker dies.
RECEIVES_TO_RUN = 2

#: The part of the time a lease may last after which its end is said to be near.
NEAR_THE_END_PART = 0.9


def first_expiry(
    *, sent_at: float, arrived_at: float, visibility_timeout: float, threshold: float
) -> float:
    """Return until when a message that just arrived is known to be hidden.

    SQS counts from the moment it answered, somewhere between the sending of the receive and
    its arrival: so from the sending. With a visibility timeout that is not known, given
    as 0, the threshold is granted: the lease is then due at once.
    """
    return sent_at + visibility_timeout if visibility_timeout else arrived_at + threshold


def longest_wait(wait: int, *, visibility_timeout: float, threshold: float) -> int:
    """Return for how long a receive may wait for messages, in whole seconds.

    So that a message which comes at the end of a long poll still has the threshold left,
    though its visibility timeout is counted from the beginning.
    """
    if not visibility_timeout:
        return wait
    return max(0, min(wait, math.floor(visibility_timeout - threshold)))


def next_timeout(lease: Lease, now: float) -> int:
    """Return the visibility timeout to ask for, in whole seconds, or 0 for none.

    The last extension is cut to what `max_lease` and SQS's 12 hours leave: past
    12 h after the receive SQS refuses the whole entry and the old timeout stands.

    None may shorten the lease. One as long as the last can't, for it counts from later.
    A shorter one could: SQS counts from the arrival of a call, and so may hide the message
    for longer than is certain.
    """
    timeout = lease.terms.visibility_timeout
    if timeout < lease.last_timeout:
        timeout = max(timeout, math.floor(lease.hidden_until - now) + 1)
    ceiling = math.floor(lease_end(lease) - now)
    if timeout > ceiling:
        return ceiling if ceiling > 0 and now + ceiling > lease.hidden_until else 0
    return timeout if now + timeout > lease.expires_at else 0


class Held(Protocol):
    """As much of a lease as says how long it may last. Times are monotonic seconds."""

    @property
    def terms(self) -> LeaseTerms:
        """What it is kept by."""

    @property
    def held_since(self) -> float:
        """When the first of its receives was asked for."""

    @property
    def received_at(self) -> float:
        """When its latest receive was asked for."""


def lease_end(lease: Held) -> float:
    """Return when the lease may last no longer, in monotonic seconds."""
    limit = min(lease.terms.max_lease, MAX_VISIBILITY_SECONDS)
    return min(lease.held_since + limit, lease.received_at + MAX_VISIBILITY_SECONDS)


def is_near_its_end(lease: Lease, now: float) -> bool:
    """Return whether nine tenths of the time that the lease may last are over.

    Or whether it can't be extended any more, where that comes first.
    """
    end = lease_end(lease)
    is_last = lease.expires_at + 1 > end
    return is_last or now >= end - (1 - NEAR_THE_END_PART) * (end - lease.held_since)


def is_half_over(lease: Held, now: float) -> bool:
    """Return whether half of the time that the lease may last is over.

    For a message that has waited until now to be run: received again, it has all of it.
    """
    end = lease_end(lease)
    return now - lease.held_since > (end - lease.held_since) / 2


def cut_release_delay(lease: Lease, delay: float, now: float) -> int:
    """Return the release delay that SQS will accept, in whole seconds, rounded up."""
    ceiling = math.floor(lease.received_at + MAX_VISIBILITY_SECONDS - now)
    return max(0, min(math.ceil(delay), ceiling))


def receives_until(wait: float, *, lasts: float) -> int:
    """Return how many more receives a message takes whose task is due in `wait` seconds.

    A release hides it for 12 hours at the most, and its last lease may be held for `lasts`.
    """
    return max(1, math.ceil((wait - lasts) / MAX_VISIBILITY_SECONDS))


def default_hold_eta(*, visibility_timeout: float, threshold: float) -> float:
    """Return how long a message is held for its task's ETA at most, in seconds.

    From there on it is cheaper to leave it to SQS: an extension is due once in
    `visibility_timeout - threshold`, and parking costs as much as two.
    """
    extended_every = visibility_timeout - threshold
    longest = max(SHORTEST_HOLD_ETA, PARKING_EXTENSIONS * extended_every)
    return min(longest, MAX_VISIBILITY_SECONDS)


def has_receives_to_park(receive_count: int, max_receive_count: int | None) -> bool:
    """Return whether a message may be received once more for nothing but its wait.

    Args:
        receive_count: Its receives so far.
        max_receive_count: Of its queue's redrive policy; None without one.
    """
    return max_receive_count is None or max_receive_count - receive_count >= RECEIVES_TO_RUN


def retry_delay(attempts: int, *, margin: float, throttled: bool, jitter: float) -> float:
    """Return the pause before the next try, in seconds.

    Args:
        attempts: Failed tries so far, at least 1; each doubles the pause.
        margin: Seconds until the lease expires. Once it has, haste is useless and
            only the doubling counts.
        throttled: Whether SQS asked for less load.
        jitter: 0 to 1, random: spreads tries over the upper half of the pause.
    """
    first = THROTTLED_RETRY_SECONDS if throttled else RETRY_SECONDS
    pause = min(first * 2.0 ** min(attempts - 1, 16), MAX_RETRY_SECONDS)
    if margin > 0:
        pause = min(pause, margin / MARGIN_PARTS)
    return max(MIN_RETRY_SECONDS, pause * (0.5 + 0.5 * jitter))


def probe_delay(refusals: int, *, jitter: float) -> float:
    """Return the pause before a queue is probed again, in seconds.

    Args:
        refusals: Refused probes in a row, at least 1; each doubles the pause.
        jitter: 0 to 1, random: spreads probes over the upper half of the pause.
    """
    return _refused_delay(refusals, jitter, MAX_PROBE_SECONDS)


def refused_delete_delay(refusals: int, *, jitter: float) -> float:
    """Return the pause before a delete that was refused is tried again, in seconds.

    Args:
        refusals: Refused tries in a row, at least 1; each doubles the pause.
        jitter: 0 to 1, random: spreads tries over the upper half of the pause.
    """
    return _refused_delay(refusals, jitter, MAX_REFUSED_DELETE_SECONDS)


def _refused_delay(count: int, jitter: float, longest: float) -> float:
    pause = min(PROBE_SECONDS * 2.0 ** min(count - 1, 16), longest)
    return pause * (0.5 + 0.5 * jitter)


def call_patience(threshold: float) -> float:
    """Return how long the leases of a call wait for its answer, in seconds.

    Args:
        threshold: The smallest of the leases in it, in seconds.
    """
    slow = min(max(threshold * SLOW_CALL_PART, MIN_CALL_SECONDS), MAX_SLOW_CALL_SECONDS)
    return min(max(threshold * CALL_PART, slow), MAX_CALL_SECONDS)


def poison_delay(receive_count: int, *, visibility_timeout: int) -> int:
    """Return the release delay on a queue with no dead-letter queue, in seconds.

    It doubles with each receive from 1 s up to the visibility timeout, so that a
    message that always fails can't spin.
    """
    doublings = min(max(receive_count, 1) - 1, 16)
    return max(1, min(1 << doublings, visibility_timeout))


def most_leases(calls_per_second: float, *, visibility_timeout: float, threshold: float) -> int:
    """Return how many leases so many full batches a second keep extended."""
    return math.floor(calls_per_second * MAX_BATCH_ENTRIES * (visibility_timeout - threshold))


def implied_calls_per_second(leases: int, *, visibility_timeout: float, threshold: float) -> float:
    """Return how many full batches a second keep that many leases extended."""
    return leases / MAX_BATCH_ENTRIES / (visibility_timeout - threshold)
