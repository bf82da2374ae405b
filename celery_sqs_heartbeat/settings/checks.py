"""The rules for values. Each check returns the fault of a value, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from celery_sqs_heartbeat.common.values import is_path, is_whole
from celery_sqs_heartbeat.leases.calls import MAX_BATCH_ENTRIES
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.policy import implied_calls_per_second
from celery_sqs_heartbeat.settings.address import parse_address, parse_target
from celery_sqs_heartbeat.settings.release_delay import release_delay_fault
from celery_sqs_heartbeat.settings.release_policies import number_fault

#: Batches a second that a worker can send to extend the leases of one queue: four calls in
#: flight of 0.1 s each. Within a region SQS answers several times faster.
CALLS_PER_SECOND = 40.0
#: The fewest characters of a token: shorter ones can be guessed by trial.
SHORTEST_TOKEN = 16
#: Settings whose values are never shown.
SECRETS = frozenset({"status_token"})


def _positive(value: Any) -> str | None:
    return number_fault(value, above=0)


def _whole(value: Any) -> str | None:
    if not is_whole(value):
        return f"must be a whole number of seconds, not {type(value).__name__}"
    return number_fault(value, low=1)


def _seconds(value: Any) -> str | None:
    return number_fault(value)


def _on_lost(value: Any) -> str | None:
    known = ("warn", "revoke", "terminate")
    return None if value in known else f"must be one of {', '.join(map(repr, known))}"


def _fifo(value: Any) -> str | None:
    return None if value in ("strict", "parallel") else "must be 'strict' or 'parallel'"


def _fifo_retry(value: Any) -> str | None:
    return None if value in ("release", "send") else "must be 'release' or 'send'"


def _batch(value: Any) -> str | None:
    if is_whole(value) and 1 <= value <= MAX_BATCH_ENTRIES:
        return None
    return f"must be a whole number of messages, 1 to {MAX_BATCH_ENTRIES}"


def _count(value: Any) -> str | None:
    if is_whole(value) and value >= 0:
        return None
    return "must be a whole number of messages, 0 or more"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def _journal(value: Any) -> str | None:
    return _parse_fault(parse_target, value, "must be a folder, or s3://BUCKET/PREFIX")


def token_fault(value: Any) -> str | None:
    """Check a secret text that is sent in a header."""
    sendable = isinstance(value, str) and all("!" <= character <= "~" for character in value)
    if not sendable or len(value) < SHORTEST_TOKEN:
        return f"must be at least {SHORTEST_TOKEN} visible ASCII characters that no one can guess"
    return None


def _session(value: Any) -> str | None:
    way_out = "must be 'module:function', as 'proj.aws:new_session'"
    return None if is_path(value) else way_out


def _address(value: Any) -> str | None:
    return _parse_fault(parse_address, value, "must be 'HOST:PORT', as '127.0.0.1:9808'")


def _parse_fault(parse: Callable[[str], object], value: Any, way_out: str) -> str | None:
    if not isinstance(value, str):
        return way_out
    try:
        parse(value)
    except ValueError as error:
        return str(error)
    return None


#: Settings of the worker as a whole.
WORKER_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    "enabled": _flag,
    "fifo_waiting": _count,
    "flush_timeout": _seconds,
    "interval": _positive,
    "journal": _journal,
    "keeper_timeout": _positive,
    "otel": _flag,
    "session": _session,
    "status": _address,
    "status_token": token_fault,
}
#: Settings for all queues, and of the worker.
GLOBAL_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    **WORKER_CHECKS,
    "visibility_timeout": _whole,
    "threshold": _positive,
    "max_lease": _positive,
    "hold_eta": _seconds,
    "release_delay": release_delay_fault,
    "on_lost": _on_lost,
    "fifo": _fifo,
    "fifo_batch": _batch,
    "fifo_retry": _fifo_retry,
}
#: Settings for one queue.
QUEUE_CHECKS = {k: v for k, v in GLOBAL_CHECKS.items() if k not in WORKER_CHECKS}
#: Settings for one task.
TASK_CHECKS = {k: v for k, v in QUEUE_CHECKS.items() if k not in ("fifo", "fifo_batch")}


def order_faults(scope: str, terms: LeaseTerms, interval: float | None) -> Iterator[str]:
    """Check 0 < interval < threshold < visibility timeout <= max_lease."""
    timeout, threshold = terms.visibility_timeout, terms.threshold
    if timeout < 1:
        yield (
            f"{scope}: visibility_timeout={timeout} must be at least 1: received messages "
            "are visible again at once; set sqs_heartbeat_visibility_timeout, or the queue's own"
        )
        return
    if threshold >= timeout:
        yield (
            f"{scope}: threshold={threshold:g} must be below visibility_timeout={timeout}: "
            "an extension is due when less than the threshold is left; lower the threshold, or "
            "raise the visibility timeout"
        )
    if interval is not None and interval >= threshold:
        yield (
            f"{scope}: interval={interval:g} must be below threshold={threshold:g}: "
            "the keeper would sleep through the time it has for an extension; lower "
            "sqs_heartbeat_interval, or raise the threshold or the visibility timeout"
        )
    if terms.max_lease < timeout:
        yield (
            f"{scope}: max_lease={terms.max_lease:g} must be at least "
            f"visibility_timeout={timeout}: the first receive alone lasts that long; raise "
            "max_lease, or lower the visibility timeout"
        )


def load_faults(scope: str, terms: LeaseTerms, leases: int) -> Iterator[str]:
    """Check that the keeper can make the calls that the settings imply.

    Args:
        leases: The most messages that the worker holds at once; 0 for no limit.
    """
    if not leases or terms.threshold >= terms.visibility_timeout:
        return
    calls = implied_calls_per_second(
        leases, visibility_timeout=terms.visibility_timeout, threshold=terms.threshold
    )
    if calls > CALLS_PER_SECOND:
        yield (
            f"{scope}: visibility_timeout={terms.visibility_timeout} with "
            f"threshold={terms.threshold:g} needs {calls:.0f} calls a second to extend "
            f"{leases} messages, but one worker can make at most {CALLS_PER_SECOND:g}: "
            "raise visibility_timeout, or lower worker_prefetch_multiplier or the concurrency"
        )
