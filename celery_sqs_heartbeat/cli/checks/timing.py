"""Checks whether visibility timeouts leave time to extend messages."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.checks.finding import Finding, Kind
from celery_sqs_heartbeat.cli.facts import AppFacts
from celery_sqs_heartbeat.core.lease import LeaseTerms
from celery_sqs_heartbeat.core.policy import MIN_CALL_SECONDS, call_patience
from celery_sqs_heartbeat.settings import PREFIX, Rules

TOO_SHORT = Kind(
    "SQSHB-W213",
    "the visibility timeout is too short",
    "when one call to SQS hangs there is no time for a second one before the message is visible "
    "again, and its task starts twice",
    "set the visibility timeout to 30 s or so; with the default threshold and interval 12 s is "
    "the least that leaves time",
)

KINDS = (TOO_SHORT,)


def is_too_short(terms: LeaseTerms, interval: float) -> bool:
    """Return whether a call that hangs leaves no time for a second one.

    An extension is due at the threshold. The keeper may sleep for its interval then, waits for
    the call, and needs the time of a short call for another.
    """
    left = terms.threshold - interval - call_patience(terms.threshold)
    return terms.extend and terms.visibility_timeout > 0 and round(left, 6) < MIN_CALL_SECONDS


def check_set_timeouts(app: AppFacts) -> Iterator[Finding]:
    """Check the visibility timeouts that the settings say."""
    settings = app.settings
    scopes: dict[str, tuple[str | None, Rules, Rules]] = {
        PREFIX + "visibility_timeout": (None, settings.rules, settings.rules)
    }
    for name, rules in settings.queues.items():
        scopes[f"{PREFIX}queues[{name!r}]"] = (name, rules, settings.for_queue(name))
    for name, rules in settings.tasks.items():
        label = f"sqs_heartbeat of task {name!r}"
        scopes[label] = (None, rules, settings.rules.under(rules))
    for label, (queue, own, rules) in scopes.items():
        timeout = own.visibility_timeout
        if timeout is not None and is_too_short(rules.terms(timeout), settings.longest_sleep()):
            yield TOO_SHORT.found(queue=queue, setting=label, value=timeout)


def check_own_timeout(app: AppFacts, queue: str, own_timeout: int) -> Iterator[Finding]:
    """Check a queue's own visibility timeout, where no setting says another."""
    rules = app.settings.for_queue(queue)
    if rules.visibility_timeout is not None:
        return
    if is_too_short(rules.terms(own_timeout), app.settings.longest_sleep()):
        yield TOO_SHORT.found(queue=queue, value=f"{own_timeout} s")
