"""Handles the messages that a poll returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.transport.ack_handler import AckHandler
from celery_sqs_heartbeat.transport.answers import Message, log_unreadable, readable
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.deliverer import Deliverer
from celery_sqs_heartbeat.transport.group_waitlist import tag_of
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.leaser import Leaser
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner

logger = get_logger(__name__)

#: How long messages wait for a keeper to replace one that has died, in seconds. A busy machine may
#: need so long.
_KEEPER_SECONDS = 5.0
#: How often to check whether it is ready, in seconds.
_LOOK_SECONDS = 0.02


class PollResponseHandler:
    """Handles the answers to a channel's polls: leases the messages, then delivers them."""

    def __init__(
        self,
        *,
        kombu: KombuChannel,
        heartbeat: Heartbeat,
        receives: PollPlanner,
        acks: AckHandler,
    ) -> None:
        self._heartbeat = heartbeat
        self._keeper = heartbeat.keeper
        self._receives = receives
        self._leaser = Leaser(kombu=kombu, heartbeat=heartbeat, acks=acks)
        self._deliverer = Deliverer(kombu=kombu, heartbeat=heartbeat, acks=acks)

    def take(self, poll: Poll, answer: Any, *, deliver: Callable[[Payload], object] | None) -> int:
        """Lease and deliver the messages of a poll. Return how many there were.

        Args:
            deliver: Takes a message; None if its queue's consumer, or the worker, has ended.
        """
        messages = readable(answer)
        if messages and deliver is not None and not self._has_keeper():
            deliver = None
        if deliver is None:
            # Before anything is logged, because the thread that reads the last polls may have to
            # wait for the log's lock.
            self._release(poll, messages)
        self._receives.log(poll.queue, None)
        log_unreadable(poll.queue, answer, messages)
        if deliver is not None:
            self._deliver(poll, self._leaser.lease_all(poll, messages), deliver)
        return len(messages)

    def _has_keeper(self) -> bool:
        """Return whether a keeper is ready, maybe after a wait. The worker reads nothing meanwhile.

        A task without a keeper would run, and its message would neither be extended nor deleted.
        """
        until = clock.now() + _KEEPER_SECONDS
        while self._keeper.is_behind:
            if self._heartbeat.is_ending or clock.now() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        return not self._heartbeat.is_ending

    def _deliver(
        self, poll: Poll, fresh: Sequence[Payload], deliver: Callable[[Payload], object]
    ) -> None:
        """Deliver leased messages. It may take long: a solo pool runs tasks in this call."""
        with self.arriving(map(tag_of, fresh)), self._heartbeat.curl_working.opened():
            ready = self._heartbeat.groups.hold_back(
                self._leaser.keep_ours(poll, fresh),
                queue=poll.queue,
                deliver=lambda payload: self._deliver_later(payload, deliver),
            )
            self._deliverer.deliver_all(ready, deliver)

    def _deliver_later(self, payload: Payload, deliver: Callable[[Payload], object]) -> None:
        """Deliver a message that has waited for another of its group."""
        with self.arriving([tag_of(payload)]):
            self._deliverer.deliver_all([payload], deliver)

    @contextmanager
    def arriving(self, receipt_handles: Iterable[str]) -> Iterator[None]:
        """Note that messages are being leased or delivered. Each will take a prefetch slot."""
        tags = set(receipt_handles)
        self._heartbeat.arriving.update(tags)
        try:
            yield
        finally:
            self._heartbeat.arriving.difference_update(tags)

    def _release(self, poll: Poll, messages: Sequence[Message]) -> None:
        """Release messages that arrive after their consumer has ended, or without a keeper."""
        new = [each for each in messages if self._leaser.lease(poll, each) is ReceivedAs.NEW]
        # The last message of a group first.
        for message in reversed(new):
            self._keeper.release(message["ReceiptHandle"], cause="not delivered")
        if messages:
            logger.info(
                "sqs-heartbeat: released %s received from %s without a consumer or a keeper",
                counted(len(messages), "message"),
                poll.queue,
            )
