"""Receives messages by long polls on threads, while there is room for them.

Each queue keeps one poll. A queue whose last answer was full may have more, up to `MAX_POLLS`, if
there is room for their messages. A queue whose last answer was empty asks for one message only, and
nothing is set aside for it: so a hundred idle queues take no room from a busy one, and at most one
message of each may arrive beyond the room. The polls of busy queues share the room in turn.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED

logger = get_logger(__name__)

#: The most polls of one queue that wait at once. More of them bring hardly more messages a second,
#: because reading the answers then takes the interpreter's whole time.
MAX_POLLS = 4
#: The pauses after failed polls, in seconds: the first, doubled with each further failure, and the
#: longest. An outage of SQS is not made worse, and its end is noticed soon enough.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0

#: One message as SQS returns it.
Raw = Mapping[str, Any]


@dataclass(eq=False)
class Source:
    """A queue that messages are received from.

    Args:
        queue_url: Its URL, or whatever names it in the log.
        receive: Makes one poll for at most so many messages, and returns them. Raises any error.
    """

    queue_url: str
    receive: Callable[[int], Sequence[Raw]] = field(repr=False)
    polls: int = field(default=0, init=False)
    #: Whether its last answer was empty, or as full as a poll's can be.
    is_idle: bool = field(default=True, init=False)
    is_busy: bool = field(default=False, init=False)
    failures: int = field(default=0, init=False)
    fault: str = field(default="", init=False)


@dataclass(frozen=True)
class _Poll:
    """An open poll.

    Attributes:
        count: How many messages it asks for.
        booked: How many of them are set aside in the room.
    """

    source: Source
    count: int
    booked: int


class Receiving:
    """Keeps as many polls open as there is room for. Safe to use from any thread.

    Args:
        room: Returns how many more messages may be held now. Called under a lock: it must not
            block, and must not call this object.
        take: Gets the messages of one answer and the time when their poll was sent, in monotonic
            seconds. Called on the poll's thread.
        jitter: Returns a random number from 0 to 1, for the pauses after failed polls.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        room: Callable[[], int],
        take: Callable[[Source, Sequence[Raw], float], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._sources = deque(sources)
        self._room = room
        self._take = take
        self._jitter = jitter
        self._booked = 0
        self._open = 0
        self._ended = threading.Condition()
        self._stopping = threading.Event()

    def fill(self) -> None:
        """Open the polls that there is room for. Call it whenever the room has grown."""
        with self._ended:
            polls = self._new_polls()
        for poll in polls:
            self._start(poll)

    def stop(self) -> None:
        """Begin no more polls. The answers of those that are open are still taken."""
        self._stopping.set()

    def join(self, timeout: float) -> bool:
        """Wait until no poll is open after `stop`. Return whether that took at most `timeout` s."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._open, timeout)

    def _new_polls(self) -> list[_Poll]:
        """Return the polls to open now, which count as open from here on."""
        polls: list[_Poll] = []
        room = 0 if self._stopping.is_set() else self._room()
        self._sources.rotate(-1)
        if room > 0:
            polls += [self._claim(each, room) for each in self._sources if not each.polls]
        is_more = True
        while is_more and room > self._booked:
            is_more = False
            for source in self._sources:
                if source.is_busy and source.polls < MAX_POLLS and room > self._booked:
                    polls.append(self._claim(source, room))
                    is_more = True
        return polls

    def _claim(self, source: Source, room: int) -> _Poll:
        free = room - self._booked
        if len(self._sources) == 1:
            count = booked = max(1, min(MAX_RECEIVED, free))
        elif source.is_idle:
            count, booked = 1, 0
        else:
            rivals = sum(not each.is_idle and not each.polls for each in self._sources)
            count = booked = max(1, min(MAX_RECEIVED, free // max(1, rivals)))
        source.polls += 1
        self._open += 1
        self._booked += booked
        return _Poll(source, count, booked)

    def _start(self, poll: _Poll) -> None:
        thread = threading.Thread(
            target=self._run, args=(poll,), name="sqs-heartbeat-poll", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self.pause_after(poll.source, f"the system grants no thread: {error}")
            with self._ended:
                self._close(poll)

    def _run(self, poll: _Poll | None) -> None:
        while poll is not None:
            self._poll(poll)
            with self._ended:
                self._close(poll)
                polls = self._new_polls()
            # This thread makes the first of them.
            poll = polls.pop(0) if polls else None
            for each in polls:
                self._start(each)

    def _close(self, poll: _Poll) -> None:
        poll.source.polls -= 1
        self._open -= 1
        self._booked -= poll.booked
        self._ended.notify_all()

    def _poll(self, poll: _Poll) -> None:
        source, sent_at = poll.source, clock.now()
        try:
            messages = source.receive(poll.count)
        except Exception as error:
            self._stopping.wait(self.pause_after(source, f"{type(error).__name__}: {error}"))
            return
        if source.failures:
            logger.info("sqs-heartbeat: receiving from %s works again", source.queue_url)
        source.failures, source.fault = 0, ""
        source.is_idle = not messages
        source.is_busy = len(messages) == poll.count
        if messages:
            try:
                self._take(source, messages, sent_at)
            except Exception:
                logger.exception(
                    "sqs-heartbeat: %d received messages of %s could not be taken; they become "
                    "visible when their visibility timeout ends",
                    len(messages),
                    source.queue_url,
                )

    def pause_after(self, source: Source, fault: str) -> float:
        """Log a failed poll if its fault is another one. Return the pause after it, in seconds."""
        if fault != source.fault:
            logger.warning(
                "sqs-heartbeat: receiving from %s fails (%s); it is tried again",
                source.queue_url,
                fault,
            )
        source.fault = fault
        pause = min(FIRST_PAUSE * 2.0 ** min(source.failures, 16), LONGEST_PAUSE)
        source.failures += 1
        source.is_idle, source.is_busy = True, False
        return pause * (0.5 + 0.5 * self._jitter())
