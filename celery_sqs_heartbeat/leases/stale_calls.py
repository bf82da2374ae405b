"""Changes of visibility that SQS may still make by a handle which a redelivery has replaced.

A standard queue takes a handle although its message was received again since, and then hides the
message for as long as that old call asks. So a call that was not answered when the same worker
received the message again may end the new lease early: an extension where the queue's visibility
timeout was raised meanwhile, and a release at once. No one can call a request back. But the worker
knows what it has sent, and so how early such a call can end the lease:

- While an extension by an old handle is open, whatever else hides the message counts for no longer
  than that extension would hide it: SQS does it after what it follows. A lease is then extended
  when a third of that is left.
- While a release by an old handle is open, a redelivery is not run: its lease may end at any
  moment. Not run once, that is: a call that hangs for hours must not keep the message. After
  that, and where the answer came while the receive was under way, the lease is not certain.
- A message that comes back before its lease had run out shows that the release was done.

A call whose answer was lost stays open: SQS may do it however late. It costs nothing as long as the
timeouts are the same. A call that SQS answered with HTTP 500 is not open: it was done before that
answer, or not at all. One that SQS refused was not done. FIFO queues refuse an old handle; they are
treated alike, as it is rare.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.calls import Call, CallKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.leases.recent import CAPACITY

_Key = tuple[str, str]
#: After any other answer nothing was done, nor will be.
_MAY_HAVE_BEEN_DONE = frozenset({Outcome.DONE, Outcome.UNSURE})


@dataclass(slots=True)
class _StaleCall:
    """What was asked of one message by one handle, in calls of the same timeout.

    Attributes:
        open: How many of the calls were not answered, as far as is known.
        answered_at: When the last answer came after which it may have been done.
        held_until: How long the lease lasted when its release was planned; -inf of an extension.
        is_spared: A redelivery was not run for it.
    """

    timeout: int
    open: int = 0
    answered_at: float = -math.inf
    held_until: float = -math.inf
    is_spared: bool = False

    @property
    def is_release(self) -> bool:
        return self.held_until > -math.inf


class StaleCalls:
    """Remembers what was asked for each message, until SQS has confirmed its delete."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._by_key: OrderedDict[_Key, dict[tuple[str, int, Action], _StaleCall]] = OrderedDict()

    def note_sent(self, call: Call) -> None:
        """Note a call that is about to be made."""
        if call.kind is not CallKind.CHANGE_VISIBILITY:
            return
        for entry in call.entries:
            strays = self._by_key.setdefault(entry.lease.key, {})
            self._by_key.move_to_end(entry.lease.key)
            each = (entry.receipt_handle, entry.timeout, entry.action)
            stray = strays.setdefault(each, _StaleCall(entry.timeout))
            stray.open += 1
            if entry.action is Action.RELEASE:
                stray.held_until = entry.lease.expires_at
        while len(self._by_key) > self._capacity:
            self._by_key.popitem(last=False)

    def note_answers(self, call: Call, outcomes: Sequence[Outcome], now: float) -> None:
        """Note what SQS has answered; a call with no answer may still be done."""
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            strays = self._by_key.get(entry.lease.key, {})
            stray = strays.get((entry.receipt_handle, entry.timeout, entry.action))
            if stray is not None and outcome is not Outcome.UNKNOWN:
                stray.open = max(0, stray.open - 1)
                if outcome in _MAY_HAVE_BEEN_DONE:
                    stray.answered_at = now

    def forget(self, key: _Key) -> None:
        """Forget a message that comes no more."""
        self._by_key.pop(key, None)

    def limit(self, key: _Key, handle: str, since: float = math.inf) -> float:
        """Return for how long a lease by that handle counts at most, in seconds.

        Args:
            since: When its receive was sent, where that is what is to count. An extension that
                was answered after that may have been done after the message was received.
        """
        extensions = (each for each in self._others(key, handle, since) if not each.is_release)
        return min((each.timeout for each in extensions), default=math.inf)

    def releases(self, key: _Key, handle: str, since: float, arrived_at: float) -> bool:
        """Return whether a release may end the lease of a receive that has just arrived."""
        strays = self._by_key.get(key, {})
        for each in [each for each, stray in strays.items() if arrived_at < stray.held_until]:
            # Nothing else can have brought the message back so soon.
            del strays[each]
        return any(each.is_release for each in self._others(key, handle, since))

    def spare(self, key: _Key, handle: str) -> bool:
        """Return whether a receive is not to be run for an open release; only once for each."""
        found = [
            each
            for each in self._others(key, handle, math.inf)
            if each.is_release and not each.is_spared
        ]
        for each in found:
            each.is_spared = True
        return bool(found)

    def _others(self, key: _Key, handle: str, since: float) -> Iterator[_StaleCall]:
        for (other, _, _), stray in self._by_key.get(key, {}).items():
            if other != handle and (stray.open or stray.answered_at >= since):
                yield stray
