"""Looks up the settings that apply to one lease."""

from __future__ import annotations

from collections.abc import Mapping

from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.policy import default_hold_eta
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.settings.delay_functions import name_of
from celery_sqs_heartbeat.settings.failure import Failure


class LeaseRules:
    """Looks up the settings of a lease's queue and task.

    Args:
        names: The names of the leased queues, by URL.
    """

    def __init__(self, *, settings: Settings, names: Mapping[str, str]) -> None:
        self._settings = settings
        self._names = names

    def releases_retries(self, lease: Lease) -> bool:
        """Return whether a retry of the lease's task is a release of its message."""
        return lease.is_in_order and self._of_task(lease).fifo_retry != "send"

    def on_lost(self, lease: Lease) -> str:
        """Return what to do with a task whose lease was lost: warn, revoke or terminate."""
        return self._of_task(lease).on_lost or "warn"

    def queue_name(self, lease: Lease) -> str:
        """Return Celery's name for the lease's queue."""
        return self._names[lease.queue_url]

    def hold_eta(self, lease: Lease) -> float:
        """Return the longest wait for an ETA during which the message is held, in seconds."""
        rules = self._of_task(lease)
        if rules.hold_eta is not None:
            return rules.hold_eta
        terms = lease.terms
        return default_hold_eta(
            visibility_timeout=terms.visibility_timeout, threshold=terms.threshold
        )

    def release_delay(self, lease: Lease, failure: Failure) -> float | None:
        """Return the configured release delay after the lease's task failed, in seconds.

        None to keep the message hidden.

        Raises:
            Exception: The error that a configured function raised.
        """
        return self._settings.for_task(failure.queue.name, lease.task).delay_after(failure)

    def release_delay_origin(self, lease: Lease) -> str:
        """Return which function is the lease's `release_delay`, and where that is set."""
        place = self._settings.place_of("release_delay", self.queue_name(lease), lease.task)
        return f"{name_of(self._of_task(lease).release_delay)}, set as {place}"

    def _of_task(self, lease: Lease) -> Rules:
        return self._settings.for_task(self.queue_name(lease), lease.task)
