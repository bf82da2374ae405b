"""Reads the settings of a worker from its first line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import Rules
from celery_sqs_heartbeat.settings.rules import DEFAULT_INTERVAL

_NUMBER = r"(None|[\d.]+)"
#: The repr of `Rules` in the journal. Its first fields are enough.
_RULES = re.compile(
    rf"Rules\(visibility_timeout={_NUMBER}, threshold={_NUMBER}, max_lease={_NUMBER}[,)]"
)


def running_terms(settings: Mapping[str, str], queue: str, timeout: int) -> LeaseTerms:
    """Return the terms of a queue's leases, as far as the settings show them.

    Args:
        settings: Settings as in `workers`.
        timeout: Visibility timeout at the receive of its messages, in seconds.
    """
    special = re.search(re.escape(repr(queue)) + ": " + _RULES.pattern, settings.get("queues", ""))
    rules = _rules(_RULES.search(settings.get("rules", ""))).under(_rules(special))
    if rules.visibility_timeout not in (None, timeout):
        # It has changed since, and a threshold belongs to the timeout that it was set with.
        rules = Rules(max_lease=rules.max_lease)
    return rules.terms(timeout)


def running_interval(settings: Mapping[str, str], terms: LeaseTerms) -> float:
    """Return the keeper's longest sleep, in seconds."""
    said = settings.get("interval")
    return float(said) if said else default_interval(terms.threshold)


def default_interval(threshold: float) -> float:
    """Return a worker's default interval, in seconds."""
    return min(DEFAULT_INTERVAL, threshold / 2)


def _rules(found: re.Match[str] | None) -> Rules:
    if found is None:
        return Rules()
    timeout, threshold, max_lease = (None if it == "None" else float(it) for it in found.groups())
    return Rules(
        visibility_timeout=None if timeout is None else int(timeout),
        threshold=threshold,
        max_lease=max_lease,
    )
