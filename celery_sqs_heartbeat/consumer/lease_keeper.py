"""The lease keeper for programs without Celery: it receives messages and keeps their leases."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any

import boto3

from celery_sqs_heartbeat.common.values import is_number, is_whole
from celery_sqs_heartbeat.consumer.hand_over import HandOver, Messages
from celery_sqs_heartbeat.consumer.received import Message
from celery_sqs_heartbeat.errors import AlreadyHeld, ConfigurationError, SqsHeartbeatError
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Event, KeeperHealth
from celery_sqs_heartbeat.leases.lease import SQS, LeaseTerms, LeaseView
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.leases.policy import longest_wait
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.settings.release_delay import backoff
from celery_sqs_heartbeat.sqs.long_polls import Poll, Raw, Receiving, Source
from celery_sqs_heartbeat.sqs.plain_sqs import ATTRIBUTES, PlainSqs

#: How long `close` waits by default, in seconds. Kubernetes kills a program 30 s after SIGTERM
#: (terminationGracePeriodSeconds).
CLOSE_SECONDS = 25.0


class LeaseKeeper:
    """Receives messages and keeps leases on them until their deletes are confirmed.

    Safe to use from any thread. Its own threads are daemons. As a context manager it closes itself.

    Args:
        queues: Names or URLs of queues to receive from. None if the program receives by itself.
        visibility_timeout: How long a message stays hidden after its last extension, in seconds:
            after so long it is delivered again if this program is killed.
        threshold: A lease is extended when less than this is left of it, in seconds. The default
            is a third of the visibility timeout.
        max_messages: The most messages that are processed at once.
        wait_time: How long a poll waits at SQS for a message, in seconds, 20 at most.
        release_delay: After how many seconds a message whose block raised is visible again: a
            number, or a function of its receive count. By default at once after the first receive,
            then 2, 4, 8, ... up to 300, less up to half of that at random.
        session: Makes the clients. By default, they find credentials as boto3 does.
        observer: Gets every event, on the keeper's threads. The default logs it.
        signals: After the first of these, `messages` ends. A second one acts as before.
        options: Of boto3's client, such as `region_name`, `endpoint_url` and `config`.

    Raises:
        ConfigurationError: Arguments are wrong.
    """

    def __init__(
        self,
        *queues: str,
        visibility_timeout: int = 30,
        threshold: float | None = None,
        max_messages: int = 10,
        wait_time: int = 10,
        release_delay: float | Callable[[int], float] = backoff,
        session: boto3.Session | None = None,
        observer: Callable[[Event], None] = log_event,
        signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT),
        **options: Any,
    ) -> None:
        if faults := list(
            _faults(queues, visibility_timeout, threshold, max_messages, wait_time, release_delay)
        ):
            raise ConfigurationError(faults)
        self._pid = os.getpid()
        self._queues = queues
        self._terms = LeaseTerms.of(visibility_timeout, threshold)
        self._wait = longest_wait(wait_time, visibility_timeout, self._terms.threshold)
        self._delay_of = release_delay if callable(release_delay) else lambda _: release_delay
        self._observer = observer
        self._signals = signals
        self._former: dict[int, Any] = {}
        self._sqs = PlainSqs(
            session,
            options,
            threshold=self._terms.threshold,
            wait=self._wait,
            queues=len(queues),
        )
        self._keeper = ThreadKeeper(self._sqs, terms=self._terms, observers=[self._observe])
        self._hands = HandOver(max_messages)
        self._is_closed = False
        self._starting = threading.Lock()
        self._receiving: Receiving | None = None

    def messages(self) -> Messages:
        """Return an iterator over messages, each with a lease, for `for` and `async for`.

        It waits for the next message, and ends after `stop` or a signal. Process each message in a
        `with` block of its own, see `Message`. While `max_messages` are in hand, it waits. Several
        threads or tasks may iterate at once.

        Raises:
            ConfigurationError: There is no queue to receive from, or SQS knows no such queue.
            SqsHeartbeatError: The keeper is closed, or belongs to the parent process.
            Exception: Any other error of boto3 when it looks up the queues.
        """
        self._start()
        with self._starting:
            if self._receiving is None:
                sources = [self._source(queue) for queue in self._queues]
                if not sources:
                    raise ConfigurationError(["LeaseKeeper(): name the queues to receive from"])
                self._receiving = Receiving(sources, room=self._room, take=self._take)
                self._listen()
        return Messages(self._next, self._receiving.fill)

    def hold(self, queue_url: str, raw: Raw, *, sent_at: float | None = None) -> Message:
        """Begin the lease of a message that the program has received by itself.

        Args:
            raw: The message as boto3 returned it. Receive it with the keeper's visibility timeout,
                and request its attribute `ApproximateReceiveCount`.
            sent_at: When its receive was sent, by `now`; now by default. So a receive must not wait
                for longer than a lease may be late.

        Raises:
            AlreadyHeld: The message must not be processed (again). Skip it.
            SqsHeartbeatError: The keeper is closed, or belongs to the parent process.
        """
        self._start()
        message, receipt = self._begin(queue_url, raw, sent_at)
        if receipt is not ReceivedAs.NEW:
            raise AlreadyHeld(
                f"message {message.message_id} of {queue_url} is {receipt.value}: skip it, it is "
                "being handled"
            )
        self._hands.hold(message)
        return message

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds, for `sent_at`."""
        return self._keeper.now()

    def __len__(self) -> int:
        """How many messages have a lease."""
        return len(self._keeper)

    @property
    def health(self) -> KeeperHealth:
        """The health of its thread. Returns at once, even if the thread hangs."""
        return self._keeper.health

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all of one moment."""
        return self._keeper.snapshot()

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until the deletes and releases so far are confirmed; False after `timeout` s."""
        return self._keeper.flush(timeout)

    def stop(self) -> None:
        """Let `messages` end. Returns at once."""
        if self._receiving is not None:
            self._receiving.stop()
        self._hands.stop()

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Stop, and wait for open polls, running blocks, and SQS's word on deletes and releases.

        What was received and is not processed is released, once no poll could receive it again.
        Returns whether that took at most `timeout` seconds. If it takes longer, what is missing is
        logged, and becomes visible when its lease ends. Don't call it from within a block.
        """
        ends_at = time.monotonic() + timeout
        left = lambda: max(0.0, ends_at - time.monotonic())  # noqa: E731 - asked three times
        self.stop()
        is_done = self._receiving is None or self._receiving.join(left())
        self._hands.release_unused()
        is_done &= self._hands.join(left())
        is_done &= self._keeper.stop(left())
        self._is_closed = True
        self._stop_listening()
        return is_done

    def __enter__(self) -> LeaseKeeper:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> LeaseKeeper:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # On a thread, because the blocks that it waits for need the event loop.
        await asyncio.to_thread(self.close)

    def _start(self) -> None:
        if self._pid != os.getpid():
            raise SqsHeartbeatError(
                "this LeaseKeeper belongs to the parent process: make one in the child"
            )
        if self._is_closed:
            raise SqsHeartbeatError("this LeaseKeeper is closed: make another")
        self._keeper.start()

    def _source(self, queue: str) -> Source:
        return Source(queue if "://" in queue else self._sqs.url_of(queue), self._poll)

    def _room(self) -> int:
        return self._hands.room() if self._keeper.may_receive else 0

    def _poll(self, poll: Poll) -> Sequence[Raw]:
        return self._sqs.receive(
            poll.source.name,
            count=poll.count,
            wait=min(self._wait, poll.longest_wait),
            timeout=self._terms.visibility_timeout,
            attributes=ATTRIBUTES,
        )

    def _take(self, poll: Poll, raws: Sequence[Raw]) -> None:
        with self._keeper.gathering():
            taken = [self._begin(poll.source.name, raw, poll.sent_at) for raw in raws]
        self._hands.add([message for message, receipt in taken if receipt is ReceivedAs.NEW])

    def _begin(self, queue_url: str, raw: Raw, sent_at: float | None) -> tuple[Message, ReceivedAs]:
        terms = replace(self._terms, in_order=True) if is_fifo(queue_url) else self._terms
        receipt = self._keeper.receive(queue_url, raw, terms=terms, sent_at=sent_at)
        message = Message(
            queue_url, raw, keeper=self._keeper, delay_of=self._delay_of, on_end=self._end
        )
        return message, receipt

    def _next(self) -> Future[Message | None]:
        taker = self._hands.take()
        self._go_on()
        return taker

    def _end(self, message: Message) -> None:
        # A forked child may leave a block, too. Its message is the parent's.
        if self._pid == os.getpid():
            self._hands.end(message)
            self._go_on()

    def _go_on(self) -> None:
        self._hands.give()
        if self._receiving is not None:
            self._receiving.fill()

    def _observe(self, event: Event) -> None:
        try:
            self._observer(event)
        finally:
            # The next of a message group may begin, a message that waits was lost, or fewer deletes
            # are unconfirmed.
            if self._hands.has_waiting or (self._receiving and not self._receiving.polls):
                self._go_on()

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._former = {each: signal.signal(each, self._on_signal) for each in self._signals}

    def _stop_listening(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, former in self._former.items():
                signal.signal(number, former)
            self._former = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._stop_listening()
        # On a thread, because this one may hold the locks that it needs.
        threading.Thread(target=self.stop, name="sqs-heartbeat-stop").start()


def _faults(
    queues: Sequence[str],
    visibility_timeout: object,
    threshold: object,
    max_messages: object,
    wait_time: object,
    release_delay: object,
) -> Iterator[str]:
    for queue in queues:
        if not isinstance(queue, str) or not queue:
            yield f"LeaseKeeper({queue!r}): must be the name or URL of a queue"
    if not is_whole(visibility_timeout) or not 1 <= visibility_timeout <= SQS.longest_timeout:
        yield (
            f"visibility_timeout={visibility_timeout!r}: must be a whole number of seconds from 1 "
            f"to {SQS.longest_timeout}"
        )
    elif threshold is not None and not (
        is_number(threshold) and 0 < threshold < visibility_timeout
    ):
        yield f"threshold={threshold!r}: must be above 0 and below the visibility_timeout"
    if not is_whole(max_messages) or max_messages < 1:
        yield f"max_messages={max_messages!r}: must be a whole number above 0"
    if not is_whole(wait_time) or not 0 <= wait_time <= SQS.longest_wait:
        most = SQS.longest_wait
        yield f"wait_time={wait_time!r}: must be a whole number of seconds from 0 to {most}"
    if not callable(release_delay) and not (is_number(release_delay) and release_delay >= 0):
        yield (
            f"release_delay={release_delay!r}: must be a number of seconds, or a function of the "
            "receive count"
        )
