"""Handles leases that have expired, or whose message may be someone else's."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.actions import entry_for, may_be_saved, next_action
from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.calls import Answer, Entry, Outcome
from celery_sqs_heartbeat.leases.event_buffer import EventBuffer
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.register import Register


class ExpiryHandler:
    """Notes that leases expire, and forgets those that lapse."""

    def __init__(self, *, register: Register, agenda: Agenda, event_buffer: EventBuffer) -> None:
        self._register = register
        self._agenda = agenda
        self._event_buffer = event_buffer

    def note_expiry(self, lease: Lease, now: float) -> None:
        """Report, once, that our clock has passed the expiry of a lease.

        Not if its task has ended: no one needs the lease any more.
        """
        if now >= lease.expires_at and lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED):
            lease.status = LeaseStatus.EXPIRED
            # Restart the pauses: a prompt try may still save the lease. After it they only double.
            lease.attempts = min(lease.attempts, 1)
            if lease.goal is Goal.HOLD:
                self._event_buffer.report(EventKind.LEASE_EXPIRED, lease, now)

    def expire_if_due(self, lease: Lease, now: float) -> bool:
        """Forget a lease whose goal is release, if its message may be someone else's.

        Returns whether it did.
        """
        is_ours = lease.is_exclusive and now < lease.expires_at
        if lease.goal is not Goal.RELEASE or (
            is_ours and lease.status not in (LeaseStatus.LOST, LeaseStatus.REFUSED)
        ):
            return False
        self.lapse(lease, now)
        return True

    def lapse(self, lease: Lease, now: float) -> None:
        """Report that a message becomes visible without a release, and forget its lease.

        If a release is in flight, its outcome is reported as unknown.
        """
        release = self._agenda.release_of(lease)
        answer = None if release is None else Answer(*release, Outcome.UNKNOWN)
        self._event_buffer.report(EventKind.MESSAGE_LAPSING, lease, now, answer)
        self._register.forget(lease)

    def due_entry(self, lease: Lease, now: float) -> Entry | None:
        """Return the entry for a lease that is due; None if there is no call to make."""
        if self.expire_if_due(lease, now):
            return None
        if (
            now >= lease.expires_at
            and next_action(lease) is Action.EXTEND
            and not self._is_worth_a_late_extension(lease, now)
        ):
            self._register.schedule(lease)
            return None
        entry = entry_for(lease, now)
        if entry is None:
            lease.status = LeaseStatus.CAPPED
            self._event_buffer.report(EventKind.LEASE_CAPPED, lease, now)
            self._register.schedule(lease)
        return entry

    def _is_worth_a_late_extension(self, lease: Lease, now: float) -> bool:
        self.note_expiry(lease, now)
        if may_be_saved(lease, now):
            return True
        # Its owner is unknown by now. A late extension would not save the lease, and might
        # disturb a new owner.
        lease.status = LeaseStatus.LOST
        if lease.goal is Goal.HOLD:
            self._event_buffer.report(EventKind.LEASE_LOST, lease, now)
        return False
