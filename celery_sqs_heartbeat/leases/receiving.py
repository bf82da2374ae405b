"""Begins leases on received messages, and continues the leases of messages received again."""

from __future__ import annotations

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.calls import Answer, CallKind, Outcome
from celery_sqs_heartbeat.leases.event_buffer import EventBuffer
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.expiry_handler import ExpiryHandler
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs, receipt_of
from celery_sqs_heartbeat.leases.refusals import Refusals
from celery_sqs_heartbeat.leases.register import Register
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls


class Receiving:
    """Adds received messages to a register."""

    def __init__(
        self,
        *,
        register: Register,
        agenda: Agenda,
        stale_calls: StaleCalls,
        refusals: Refusals,
        expiry_handler: ExpiryHandler,
        event_buffer: EventBuffer,
    ) -> None:
        self._register = register
        self._agenda = agenda
        self._stale_calls = stale_calls
        self._refusals = refusals
        self._expiry_handler = expiry_handler
        self._event_buffer = event_buffer

    def receive(
        self,
        receive: Receive,
        *,
        terms: LeaseTerms,
        receipt: ReceivedAs | None,
        is_certain: bool,
    ) -> ReceivedAs:
        """Add a received message, and return its classification; see `LeaseBook.receive`."""
        now = receive.arrived_at
        lease = self._register.of_message(receive.key)
        if receipt is None:
            is_finished = receive.key in self._register.finished
            receipt = receipt_of(
                receive, lease, is_finished=is_finished, stale_calls=self._stale_calls
            )
        if receive.has_lapsed and lease is not None:
            # The message was received again since, if only by this late answer. So our handle is
            # stale, and a release by it would break the lease of the current owner.
            lease.is_exclusive = False
            if not self._expiry_handler.expire_if_due(lease, now):
                self._register.schedule(lease)
        if receipt in (ReceivedAs.LAPSED, ReceivedAs.RELEASED):
            return receipt
        if lease is not None and receive.is_older_than(lease):
            # The lease keeps its newer handle. On a standard queue, SQS would confirm a delete by
            # the older one, but delete nothing.
            self._register.add_handle(lease, receive.receipt_handle)
            return receipt
        is_released = self._stale_calls.releases(
            receive.key, receive.receipt_handle, receive.sent_at, now
        )
        if lease is not None and lease.goal is Goal.RELEASE:
            self._end_by_redelivery(lease, now)
            lease = None
        if lease is None:
            lease = receive.new_lease(terms)
            self._register.add(lease)
            if receipt is ReceivedAs.FINISHED:
                self._register.set_goal(lease, Goal.DELETE, now, due=now)
        receive.describe(lease)
        self._go_on(lease, receive, is_certain=is_certain and not is_released)
        self._event_buffer.report(EventKind.MESSAGE_RECEIVED, lease, now, cause=receipt.value)
        return receipt

    def _go_on(self, lease: Lease, receive: Receive, *, is_certain: bool) -> None:
        """Begin or continue a lease with its latest receive."""
        key, handle = receive.key, receive.receipt_handle
        is_refused = self._refusals.is_refused(receive.queue_url, CallKind.CHANGE_VISIBILITY)
        lease.status = LeaseStatus.REFUSED if is_refused else LeaseStatus.OWNED
        lease.limit = self._stale_calls.limit(key, handle)
        limit = self._stale_calls.limit(key, handle, receive.sent_at)
        lease.take_receive(
            handle,
            receive_count=receive.receive_count,
            sent_at=receive.sent_at,
            hidden_until=receive.arrived_at + receive.hidden_for,
            hidden_for=receive.hidden_for,
            counts_for=limit,
            expires_at=policy.first_expiry(
                sent_at=receive.sent_at,
                arrived_at=receive.arrived_at,
                visibility_timeout=min(receive.hidden_for, limit),
                threshold=min(lease.terms.threshold, limit),
            ),
        )
        lease.is_exclusive = is_certain
        self._register.add_handle(lease, handle)
        self._register.place_in_group(lease)
        if lease.goal is Goal.DELETE:
            lease.end_at = receive.arrived_at
        self._register.schedule(lease)

    def _end_by_redelivery(self, lease: Lease, now: float) -> None:
        """End a lease whose goal was release, because its message was received again.

        If the lease had not expired, a release in flight has taken effect: nothing else can have
        made the message visible. Its answer is ignored.
        """
        release = self._agenda.release_of(lease)
        report = self._event_buffer.report
        if release is None:
            report(EventKind.MESSAGE_LAPSING, lease, now)
        elif now < lease.expires_at:
            report(EventKind.MESSAGE_RELEASED, lease, now, Answer(*release, Outcome.DONE))
        else:
            report(EventKind.MESSAGE_LAPSING, lease, now, Answer(*release, Outcome.UNKNOWN))
        self._register.forget(lease)
