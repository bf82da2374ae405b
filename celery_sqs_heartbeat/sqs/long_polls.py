"""Receives messages by long polls on threads, while there is room for them.

Each queue keeps one poll. A queue whose last answer was full may have more, up to `MAX_POLLS`, if
there is room for their messages. Of several queues, one whose last answer was empty asks for one
message only, and nothing is set aside for it: so a hundred idle queues take no room from a busy
one, and at most one message of each may arrive beyond the room. The polls of busy queues share the
room in turn.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.sqs.sending import CallGivenUp

logger = get_logger(__name__)

#: The most polls of one queue that wait at once. More of them bring hardly more messages a second,
#: because reading the answers then takes the interpreter's whole time.
MAX_POLLS = 4
#: The first pause after failed polls, which doubles with each, and the longest, in seconds.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
#: How late an answer may be before its poll fails, in seconds. SQS answers within milliseconds
#: after the wait. The rest allows for a slow network: TCP repeats a lost packet after 0.2, 0.6,
#: 1.4, 3 and 6.2 s.
ANSWER_SECONDS = 10.0
#: The shortest wait for which SQS asks all of its servers, in seconds (SQS developer guide, "Amazon
#: SQS short and long polling").
SHORT_WAIT = 1
#: Added to the wait of a poll, for the sending of its answer, in seconds.
_GRACE = 0.5
#: How long a poll waits until as many messages fit as are worth a receive, in seconds.
_GATHER_SECONDS = 0.05
#: How long a poll for one message waits for room for a second, as a part of what the last one took,
#: and how many polls do not after one that got none. Two messages cost hardly more than one.
_GATHER_PART, _SKIPS = 0.25, 4
#: How long a thread rests before it ends, in seconds. To start one takes as long as half a poll.
_REST_SECONDS = 10.0
#: What differs between two texts of one error.
_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+(?= ms)")

#: One message as SQS returns it.
Raw = Mapping[str, Any]


@dataclass(eq=False, kw_only=True)
class Poll:
    """A receive that is under way.

    Attributes:
        count: How many messages it asks for.
        booked: How many of them are set aside in the room.
        wanted: For how many messages it waits until there is room; 0 once it is sent.
        patience: How long it waits for that, in seconds.
        longest_wait: How long it may wait for messages at most, in seconds.
        queue: The queue as it was when the poll was prepared; None in a program without Celery.
        sent_at: When it was sent, in seconds of `clock.now`.
        waits: How long it waits for messages, in seconds.
        is_sent: Whether it has been sent, or may be at any time.
        is_over: Whether it has ended. It counts as open until its thread begins another.
    """

    source: Source
    count: int
    booked: int
    longest_wait: int = SQS.longest_wait
    queue: ConsumedQueue | None = None
    sent_at: float = field(default_factory=lambda: clock.now())
    waits: float = 0.0
    is_sent: bool = True
    is_over: bool = False
    wanted: int = 0
    patience: float = 0.0
    #: Tells its thread that there is room enough.
    grown: AutoResetEvent = field(default_factory=AutoResetEvent, repr=False)

    @property
    def ends_at(self) -> float:
        """When its answer should arrive at the latest."""
        return self.sent_at + self.waits + _GRACE

    @property
    def is_overdue(self) -> bool:
        """Whether it has outlasted every timeout: it hangs where no timeout counts."""
        hangs = self.is_sent and not self.is_over
        return hangs and clock.now() > self.ends_at + 2 * ANSWER_SECONDS


@dataclass(eq=False)
class Source:
    """A queue that messages are received from.

    Args:
        name: What names it in the log.
        receive: Makes a poll, and returns its messages. Raises any error.
        most: Returns how many messages a poll may ask for. 0 allows one poll, for one message.
        least: Returns how many messages a poll should ask for at least, if the last answer was
            full. Its argument is whether another poll is open.
        pause: The pause after an empty answer, in seconds.
        in_order: Whether messages of one group of the queue run one after the other.
    """

    name: str
    receive: Callable[[Poll], Sequence[Raw]] = field(repr=False)
    most: Callable[[], int] = field(default=lambda: SQS.most_received, repr=False)
    least: Callable[[bool], int] = field(default=lambda is_beside: 1, repr=False)
    pause: float = 0.0
    in_order: bool = False
    #: Whether its last answer was empty, or as full as a poll's can be.
    is_idle: bool = field(default=True, init=False)
    is_busy: bool = field(default=False, init=False)
    #: How many messages its last answer had.
    last: int = field(default=0, init=False)
    #: How long its last receive took, in seconds.
    took: float = field(default=0.0, init=False)
    #: How many polls do not wait for room for a second message.
    skips: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    fault: str = field(default="", init=False)


@dataclass(eq=False)
class _Reader:
    """A thread that makes one poll after another. It rests while there is no room for its next."""

    poll: Poll | None = field(repr=False)
    woken: AutoResetEvent = field(default_factory=AutoResetEvent, repr=False)


class Receiving:
    """Keeps as many polls open as there is room for. Safe to use from any thread.

    Args:
        room: Returns how many more messages may be held now, without those of open polls. Called
            under a lock: it must not block, and must not call this object.
        take: Gets the messages of one poll, on the poll's thread.
        jitter: Returns a random number from 0 to 1, for the pauses after failed polls.
    """

    def __init__(
        self,
        sources: Sequence[Source] = (),
        *,
        room: Callable[[], int],
        take: Callable[[Poll, Sequence[Raw]], object],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._sources = {source.name: source for source in sources}
        self._room = room
        self._take = take
        self._lock = threading.RLock()
        self._jitter = jitter
        self._open: list[Poll] = []
        self._readers: list[_Reader] = []
        self._resting: list[_Reader] = []
        self._is_stopping = False
        self._ended = AutoResetEvent()

    @property
    def polls(self) -> tuple[Poll, ...]:
        """The open polls."""
        return tuple(self._open)

    @property
    def _booked(self) -> int:
        return sum(poll.booked for poll in self._open)

    def _polls_of(self, source: Source) -> list[Poll]:
        return [poll for poll in self._open if poll.source is source]

    def add(self, *sources: Source) -> None:
        """Receive from queues from now on, unless they are known."""
        with self._lock:
            for source in sources:
                self._sources.setdefault(source.name, source)
        self.fill()

    def remove(self, name: str) -> None:
        """Begin no more polls of a queue. The answers of those that are open are still taken."""
        with self._lock:
            self._sources.pop(name, None)

    def fill(self) -> None:
        """Open the polls that there is room for. Call it whenever the room has grown."""
        with self._lock:
            refused = self._start_all(self._new_polls())
        for each in refused:
            self._note_failure(*each)

    def stop(self) -> None:
        """Begin no more polls. The answers of those that are open are still taken."""
        # Without a lock, because a signal handler may call this at any time.
        self._is_stopping = True
        for reader in tuple(self._readers):
            reader.woken.set()

    def join(self, timeout: float) -> bool:
        """Wait until no poll is open after `stop`. Return whether that took at most `timeout` s."""
        until = clock.now() + timeout
        while True:
            with self._lock:  # A thread may be between two polls.
                if not self._open:
                    return True
            if (left := until - clock.now()) <= 0:
                return False
            self._ended.wait(left)

    def _new_polls(self) -> list[Poll]:
        """Return the polls to open now, which count as open from here on."""
        room = 0 if self._is_stopping or not self._sources else self._room()
        if room <= 0:
            return []
        self._grow(room)
        sources = list(self._sources.values())
        polled = {poll.source for poll in self._open if not poll.is_overdue}
        unpolled = [each for each in sources if each not in polled]
        polls = [self._claim(each, room) for each in unpolled if self._may_exceed(room)]
        while more := [
            self._claim(each, room) for each in sources if self._is_due_beside(each, room)
        ]:
            polls += more
        if polls and len(sources) > 1:  # The next time, others are the first.
            first = next(iter(self._sources))
            self._sources[first] = self._sources.pop(first)
        return polls

    def _may_exceed(self, room: int) -> bool:
        """Return whether another poll exceeds the room by at most one for each further queue."""
        asked = sum(
            poll.count
            for poll in self._open
            if self._sources.get(poll.source.name) is poll.source and not poll.is_overdue
        )
        return asked < room + len(self._sources) - 1

    def _is_due_beside(self, source: Source, room: int) -> bool:
        if not source.is_busy or room <= self._booked:
            return False
        own = self._polls_of(source)
        is_waiting = any(poll.wanted for poll in own)
        is_room = source.most() > 0 and room - self._booked >= source.least(True)
        return 0 < len(own) < MAX_POLLS and not is_waiting and is_room

    def _claim(self, source: Source, room: int) -> Poll:
        free, most = room - self._booked, min(SQS.most_received, source.most())
        own = self._polls_of(source)
        if len(self._sources) == 1:
            count = booked = max(1, min(most, free))
        elif source.is_idle:
            count, booked = 1, 0
        else:
            polled = {poll.source for poll in self._open}
            rivals = sum(not each.is_idle and each not in polled for each in self._sources.values())
            # A poll may wait for long, and keeps the others from the room that it has booked.
            count = booked = max(1, min(most, free // max(1, rivals), 2 * source.last))
        poll = Poll(source=source, count=count, booked=booked)
        if own or self._is_greedy(booked, free - booked):
            poll.longest_wait = SHORT_WAIT
        if source.is_busy and not own:
            if count < (least := min(source.least(False), most)):
                poll.wanted, poll.patience = least, _GATHER_SECONDS
            elif count == 1 < most and not source.skips:
                poll.wanted, poll.patience = 2, min(_GATHER_SECONDS, _GATHER_PART * source.took)
            source.skips = max(0, source.skips - 1)
        self._open.append(poll)
        return poll

    def _grow(self, room: int) -> None:
        """Let polls that wait for more room have it."""
        for poll in self._open:
            if poll.wanted and (free := room - self._booked) > 0:
                most = min(SQS.most_received, poll.source.most())
                more = max(0, min(most - poll.count, free))
                poll.count, poll.booked = poll.count + more, poll.booked + more
                if self._is_greedy(poll.booked, free - more):
                    poll.longest_wait = SHORT_WAIT
                if poll.count >= min(poll.wanted, most):
                    poll.grown.set()

    def _is_greedy(self, booked: int, left: int) -> bool:
        """Return whether a poll leaves too little room for polls of the other queues."""
        return booked > 1 and left < len(self._sources) - 1

    def _start_all(self, polls: Sequence[Poll]) -> list[tuple[Source, str]]:
        """Have threads make polls. Return the sources for which the system grants none."""
        refused = []
        for poll in polls:
            if self._resting:
                reader = self._resting.pop()
                reader.poll = poll
                reader.woken.set()
                continue
            reader = _Reader(poll)
            thread = threading.Thread(
                target=self._run, args=(reader,), name="sqs-heartbeat-poll", daemon=True
            )
            self._readers.append(reader)
            try:
                thread.start()
            except RuntimeError as error:
                self._readers.remove(reader)
                self._close(poll)
                refused.append((poll.source, f"the system grants no thread: {error}"))
        return refused

    def _run(self, reader: _Reader) -> None:
        while (poll := reader.poll) is not None:
            try:
                if poll.wanted and not poll.grown.wait(poll.patience):
                    poll.source.skips = _SKIPS
                with self._lock:
                    poll.wanted = 0
                if not self._is_stopping and (pause := self._poll(poll)):
                    self._pause(poll, reader, pause)
            except BaseException:
                with self._lock:
                    self._close(poll)
                raise
            with self._lock:
                self._close(poll)
                polls = self._new_polls()
                reader.poll = polls.pop(0) if polls else None
                refused = self._start_all(polls)
                is_resting = reader.poll is None and not self._is_stopping
                if is_resting:
                    self._resting.append(reader)
            for each in refused:
                self._note_failure(*each)
            if is_resting:
                reader.woken.wait(_REST_SECONDS)
                with self._lock:
                    if reader in self._resting:
                        self._resting.remove(reader)
        self._readers.remove(reader)

    def _pause(self, poll: Poll, reader: _Reader, seconds: float) -> None:
        """Wait before the next poll of a queue. Others may use the room meanwhile."""
        with self._lock:
            poll.is_over, poll.booked = True, 0
        if not self._is_stopping:
            reader.woken.wait(seconds)

    def _close(self, poll: Poll) -> None:
        self._open.remove(poll)
        self._ended.set()

    def _poll(self, poll: Poll) -> float:
        """Make a poll. Return for how long to pause after it, in seconds."""
        source = poll.source
        try:
            messages = source.receive(poll)
        except CallGivenUp:
            return FIRST_PAUSE
        except Exception as error:
            return self._note_failure(source, f"{type(error).__name__}: {error}")
        was_failing = bool(source.fault)
        source.failures, source.fault = 0, ""
        source.is_idle, source.last = not messages, len(messages)
        source.took = clock.now() - poll.sent_at
        source.is_busy = len(messages) >= poll.count
        try:
            if messages:
                self._take(poll, messages)
        except Exception:
            logger.exception(
                "sqs-heartbeat: %d received messages of %s could not be taken; those without a "
                "lease become visible when their visibility timeout ends",
                len(messages),
                source.name,
            )
        if was_failing:
            logger.warning("sqs-heartbeat: receiving from queue %s works again", source.name)
        return 0.0 if messages else source.pause

    def _note_failure(self, source: Source, fault: str) -> float:
        """Log a fault that is new, not under the lock. Return the pause after it, in seconds."""
        known = _VARIABLE.sub("", fault)
        if known != source.fault:
            logger.error(
                "sqs-heartbeat: receiving from queue %s fails and is retried: %s",
                source.name,
                fault,
            )
        source.fault = known
        pause = min(FIRST_PAUSE * 2.0 ** min(source.failures, 16), LONGEST_PAUSE)
        source.failures += 1
        source.is_idle, source.is_busy = True, False
        return pause * (0.5 + 0.5 * self._jitter())
