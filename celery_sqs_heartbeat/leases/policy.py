"""The rules of extending, retrying and releasing: a lease in, its next action and numbers out."""

from __future__ import annotations

import math

from celery_sqs_heartbeat.leases.events import CallKind, Entry
from celery_sqs_heartbeat.leases.lease import SQS, Action, Goal, Lease, LeaseStatus

#: First pause after a temporary error, in seconds. A dropped packet no longer matters by then.
RETRY_SECONDS = 0.05
#: First pause after a throttled call, in seconds. It is longer because SQS wants less load.
THROTTLED_RETRY_SECONDS = 0.2
#: Longest pause between tries, in seconds.
MAX_RETRY_SECONDS = 5.0
#: Shortest pause between tries, in seconds, however close the expiry is.
MIN_RETRY_SECONDS = 0.02
#: A pause takes at most one part of this many of the remaining margin. So a lease whose
#: extensions fail gets many tries before it expires, rather than one long wait.
MARGIN_PARTS = 8
#: First and longest pause before a queue that refused a call is probed, in seconds. While a policy
#: is being replaced, refusals last moments. Changes take up to minutes to reach SQS.
PROBE_SECONDS = 0.2
MAX_PROBE_SECONDS = 10.0
#: The longest pause before a refused delete is tried again, in seconds. Every such message is
#: retried separately, and there may be thousands.
MAX_REFUSED_DELETE_SECONDS = 30.0
#: A call may take this part of its smallest threshold before its leases join another call. So
#: leases survive two hanging calls in a row.
CALL_PART = 1 / 3
#: Shortest wait for the answer to a call, in seconds. botocore itself stops reading a little
#: earlier. This limit is for the waits that botocore does not bound, such as name resolution and
#: credentials.
MIN_CALL_SECONDS = 0.6
#: Longest wait for the answer to a call, in seconds.
MAX_CALL_SECONDS = 20.0
#: Acks gather for at most this long, in seconds, to share one DeleteMessageBatch (`gathering`).
GATHER_SECONDS = 0.05
#: How long a keeper waits at its end for its deletes and releases to be confirmed, in seconds.
#: Half of Kubernetes' default grace period of 30 s (terminationGracePeriodSeconds): the other half
#: is for the tasks that run and for the journal's last segment.
FLUSH_SECONDS = 15.0

#: The cost of parking a message at SQS until its task is due, in extensions: a release and another
#: receive. Both share calls as extensions do: at best ten entries to a call, at worst one.
PARKING_EXTENSIONS = 2
#: For a wait up to this many seconds, a message is not parked: it would cost one of its receives.
SHORTEST_HOLD_ETA = 60.0
#: A wait below this many seconds is too short for a release, which takes whole seconds.
SHORTEST_PARKING = 1.0
#: A parked message must have at least this many receives left: one to run its task, and another in
#: case the task fails or its worker dies.
RECEIVES_TO_RUN = 2

#: After this part of its maximum time, a lease is reported as near its end.
NEAR_THE_END_PART = 0.9

CALL_KIND = {
    Action.EXTEND: CallKind.CHANGE_VISIBILITY,
    Action.RELEASE: CallKind.CHANGE_VISIBILITY,
    Action.DELETE: CallKind.DELETE,
}
#: The statuses of leases that an extension may still save.
EXTENDABLE = frozenset({LeaseStatus.OWNED, LeaseStatus.EXPIRED, LeaseStatus.REFUSED})


def first_expiry(
    *, sent_at: float, arrived_at: float, visibility_timeout: float, threshold: float
) -> float:
    """Return until when a message that has just arrived is certainly hidden.

    SQS counts from its answer, which lies between the sending of the receive and its arrival.
    The safe choice is the sending. If the visibility timeout is unknown, given as 0, the result
    is the arrival plus the threshold, so the first extension is due at once.
    """
    return sent_at + visibility_timeout if visibility_timeout else arrived_at + threshold


def longest_wait(wait: int, visibility_timeout: float, threshold: float) -> int:
    """Return for how long a receive may wait for messages, in whole seconds.

    A message that arrives at the end of a long poll must still have the threshold left, although
    its visibility timeout is counted from the start of the poll.
    """
    if not visibility_timeout:
        return wait
    return max(0, min(wait, math.floor(visibility_timeout - threshold)))


def next_timeout(lease: Lease, now: float) -> int:
    """Return the visibility timeout of the next extension, in whole seconds, or 0 for none.

    The last extension is shortened to what `max_lease` and SQS's 12 hours leave. SQS refuses an
    entry that reaches past 12 h after the receive, and the old timeout remains.

    No extension may shorten the lease. A timeout as long as the last can't, because it counts
    from later. A shorter one could: SQS counts from the arrival of a call, so the message may be
    hidden for longer than we know for certain.
    """
    timeout = lease.terms.visibility_timeout
    if timeout < lease.last_timeout:
        timeout = max(timeout, math.floor(lease.hidden_until - now) + 1)
    ceiling = math.floor(lease_end(lease) - now)
    if timeout > ceiling:
        return ceiling if ceiling > 0 and now + ceiling > lease.hidden_until else 0
    return timeout if now + timeout > lease.expires_at else 0


def lease_end(lease: Lease) -> float:
    """Return when the lease must end, in monotonic seconds."""
    limit = min(lease.terms.max_lease, SQS.longest_hold)
    return min(lease.held_since + limit, lease.received_at + SQS.longest_hold)


def is_near_its_end(lease: Lease, now: float) -> bool:
    """Return whether nine tenths of the lease's maximum time have passed.

    Also true if it can no longer be extended.
    """
    end = lease_end(lease)
    is_last = max(lease.expires_at, lease.hidden_until) + 1 > end
    return is_last or now >= end - (1 - NEAR_THE_END_PART) * (end - lease.held_since)


def is_half_over(lease: Lease, now: float) -> bool:
    """Return whether half of the lease's maximum time has passed.

    It is for a message that has waited until now to be run. After another receive it has all
    its time again.
    """
    end = lease_end(lease)
    return now - lease.held_since > (end - lease.held_since) / 2


def cut_release_delay(lease: Lease, delay: float, now: float) -> int:
    """Return the release delay that SQS will accept, in whole seconds, rounded up."""
    ceiling = math.floor(lease.received_at + SQS.longest_hold - now)
    return max(0, min(math.ceil(delay), ceiling))


def receives_until(wait: float, *, lasts: float) -> int:
    """Return how many more receives a message needs if its task is due in `wait` seconds.

    A release hides it for at most 12 hours, and its last lease may last `lasts` seconds.
    """
    return max(1, math.ceil((wait - lasts) / SQS.longest_timeout))


def default_hold_eta(visibility_timeout: float, threshold: float) -> float:
    """Return how long a message is held at most until its task's ETA, in seconds.

    For longer waits it is cheaper to park the message at SQS: an extension is due once in
    `visibility_timeout - threshold`, and parking costs as much as two.
    """
    extended_every = visibility_timeout - threshold
    longest = max(SHORTEST_HOLD_ETA, PARKING_EXTENSIONS * extended_every)
    return min(longest, SQS.longest_timeout)


def has_receives_to_park(receive_count: int, max_receive_count: int | None) -> bool:
    """Return whether a message may spend one more receive on waiting.

    Args:
        receive_count: Its receives so far.
        max_receive_count: From its queue's redrive policy; None without one.
    """
    return max_receive_count is None or max_receive_count - receive_count >= RECEIVES_TO_RUN


def retry_delay(attempts: int, *, margin: float, throttled: bool, jitter: float) -> float:
    """Return the pause before the next try, in seconds.

    Args:
        attempts: Failed tries so far, at least 1; each doubles the pause.
        margin: Seconds until the lease expires. After that, haste is useless and
            only the doubling counts.
        throttled: Whether SQS throttled the call.
        jitter: 0 to 1, random: spreads tries over the upper half of the pause.
    """
    first = THROTTLED_RETRY_SECONDS if throttled else RETRY_SECONDS
    pause = min(first * 2.0 ** min(attempts - 1, 16), MAX_RETRY_SECONDS)
    if margin > 0:
        pause = min(pause, margin / MARGIN_PARTS)
    return max(MIN_RETRY_SECONDS, pause * (0.5 + 0.5 * jitter))


def refused_delay(refusals: int, *, longest: float, jitter: float) -> float:
    """Return the pause after a refusal, before the next try, in seconds.

    Args:
        refusals: Refused tries in a row, at least 1; each doubles the pause.
        longest: The longest pause.
        jitter: 0 to 1, random: spreads tries over the upper half of the pause.
    """
    pause = min(PROBE_SECONDS * 2.0 ** min(refusals - 1, 16), longest)
    return pause * (0.5 + 0.5 * jitter)


def call_patience(threshold: float) -> float:
    """Return how long the leases of a call wait for its answer, in seconds.

    Args:
        threshold: The smallest threshold of the leases in the call, in seconds.
    """
    return min(max(threshold * CALL_PART, MIN_CALL_SECONDS), MAX_CALL_SECONDS)


def most_leases(calls_per_second: float, visibility_timeout: float, threshold: float) -> int:
    """Return how many leases can be kept with this many full batches a second."""
    return math.floor(calls_per_second * SQS.most_entries * (visibility_timeout - threshold))


def implied_calls_per_second(leases: int, visibility_timeout: float, threshold: float) -> float:
    """Return how many full batches a second it takes to keep this many leases."""
    return leases / SQS.most_entries / (visibility_timeout - threshold)


def next_action(lease: Lease) -> Action | None:
    """Return the next action for the lease, or None while it only waits for its owner."""
    extendable = lease.terms.extend and lease.status in EXTENDABLE
    if lease.goal is Goal.HOLD:
        return Action.EXTEND if extendable else None
    if lease.goal is Goal.RELEASE:
        return Action.RELEASE
    # A delete that failed is tried again, and the lease is extended in the meantime. Not if the
    # queue refuses extensions: the delete must not wait for a probe.
    extendable = extendable and lease.status is not LeaseStatus.REFUSED
    if lease.attempts and extendable and lease.extend_at < lease.end_at:
        return Action.EXTEND
    return Action.DELETE


def urgency(lease: Lease) -> float:
    """Return the rank of a lease among those that are due. The lowest goes first.

    An extension ranks by its expiry, so a retry keeps its place. A release or a delete ranks
    by the moment it is due, so it goes before extensions that become due later. Its retry
    ranks behind leases that wait for their first try.
    """
    if next_action(lease) is Action.EXTEND:
        return lease.expires_at - lease.terms.threshold
    return lease.end_at


def may_be_saved(lease: Lease, now: float) -> bool:
    """Return whether a late extension of an expired lease does more good than harm."""
    timeout = lease.terms.visibility_timeout
    # An extension shorter than the visibility timeout would shorten the lease of the message's
    # next owner, if there is one. Standard queues still accept a stale handle.
    is_cut = 0 < next_timeout(lease, now) < timeout
    # The task of a message that is being deleted has ended: no other worker needs the message.
    may_be_late = lease.terms.extend_late or lease.goal is Goal.DELETE
    return may_be_late and now < lease.expires_at + timeout and not is_cut


def is_lost(lease: Lease, now: float) -> bool:
    """Return whether the message of a lease is no longer ours, as far as we know."""
    return lease.status is LeaseStatus.LOST or (
        # Its status becomes LOST only at its next extension, which may wait for hanging calls.
        now >= lease.expires_at
        and next_action(lease) is Action.EXTEND
        and not may_be_saved(lease, now)
    )


def is_ours(lease: Lease, now: float) -> bool:
    """Return whether the message of a lease is ours now, as far as we know."""
    return lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED) and now < lease.expires_at


def is_confirmed(lease: Lease | None, now: float, hidden_until: float) -> bool | None:
    """Return whether SQS has confirmed that the message is ours; None before its answer.

    True for a message that is not extended, as there is nothing to wait for. An extension that is
    confirmed in time is enough for a lease that an unanswered release may end: no answer of SQS can
    rule that out, and the message must run at some time.

    Args:
        hidden_until: The earliest end of the visibility timeout of its receive. Until then, no one
            else can have received it, except after such a release.
    """
    if lease is None or lease.goal is not Goal.HOLD:
        return False
    if lease.status is LeaseStatus.REFUSED or not lease.terms.extend:
        return True
    if lease.extensions or lease.status is not LeaseStatus.OWNED:
        return (lease.is_exclusive or now < hidden_until) and is_ours(lease, now)
    return None


def entry_for(lease: Lease, now: float) -> Entry | None:
    """Return the entry for the next action, or None if there is no call to make."""
    action = next_action(lease)
    if action is None:
        return None
    if action is Action.EXTEND:
        timeout = next_timeout(lease, now)
        if not timeout:
            return None
        return Entry(lease, lease.receipt_handle, action, timeout, lease.limit)
    if action is Action.DELETE:
        return Entry(lease, lease.receipt_handle, action)
    # The rest of the delay: this may be a retry, and the message must become visible on time.
    left = lease.release_delay - max(0.0, now - lease.asked_at)
    delay = cut_release_delay(lease, left, now)
    return Entry(lease, lease.receipt_handle, action, delay)


def early_entry_for(lease: Lease, now: float) -> Entry | None:
    """Return the entry for a lease that is not due yet, or None if it can't join a call early."""
    if lease.is_isolated or now >= lease.expires_at:
        return None
    if lease.last_timeout > lease.terms.visibility_timeout:
        # Its message is hidden for longer than an extension would hide it: too early to extend.
        return None
    if lease.attempts and next_action(lease) is not Action.EXTEND:
        # It pauses after a failed, throttled or refused try.
        return None
    return entry_for(lease, now)
