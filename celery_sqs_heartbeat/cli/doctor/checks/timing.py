"""Checks whether visibility timeouts leave time to extend messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.policy import MIN_CALL_SECONDS, call_patience
from celery_sqs_heartbeat.settings import PREFIX, Rules, Settings
from celery_sqs_heartbeat.settings.rules import DEFAULT_INTERVAL, order_faults

TOO_LATE = Kind(
    "SQSHB-W214",
    "extensions begin too late",
    "If two calls to SQS hang, there is no time for a third one before the message becomes "
    "visible again. Its task then starts twice.",
    "Remove the threshold and the interval that are set. Or raise sqs_heartbeat_threshold and "
    "lower sqs_heartbeat_interval.",
)
TOO_SHORT = Kind(
    "SQSHB-W213",
    "the visibility timeout is too short",
    "If two calls to SQS hang, there is no time for a third one before the message becomes "
    "visible again. Its task then starts twice.",
    "Set the visibility timeout to about 30 s. With the default threshold and interval, the "
    "shortest that leaves enough time is 15 s.",
)

KINDS = (TOO_SHORT, TOO_LATE)


def is_too_short(terms: LeaseTerms, interval: float) -> bool:
    """Return whether two calls that hang leave no time for a third one.

    An extension is due at the threshold. From then on, the keeper may sleep for its interval, then
    waits for the calls that hang, and needs the time of a short call for another one.
    """
    left = terms.threshold - interval - 2 * call_patience(terms.threshold)
    return terms.extend and terms.visibility_timeout > 0 and round(left, 6) < MIN_CALL_SECONDS


def check_set_timeouts(app: AppFacts) -> Iterator[Finding]:
    """Check the visibility timeouts in the settings."""
    settings = app.settings
    scopes: dict[str, tuple[str | None, Rules, Rules]] = {
        PREFIX + "visibility_timeout": (None, settings.rules, settings.rules)
    }
    for name, rules in settings.queues.items():
        scopes[f"{PREFIX}queues[{name!r}]['visibility_timeout']"] = (
            name,
            rules,
            settings.for_queue(name),
        )
    for name, rules in settings.tasks.items():
        label = f"task {name!r}: sqs_heartbeat['visibility_timeout']"
        scopes[label] = (None, rules, settings.rules.under(rules))
    for label, (queue, own, rules) in scopes.items():
        timeout = own.visibility_timeout
        if timeout is not None:
            too_short = TOO_SHORT.found(queue=queue, setting=label, value=timeout)
            yield from _check_haste(settings, rules, timeout, too_short)


def check_own_timeout(app: AppFacts, queue: str, own_timeout: int) -> Iterator[Finding]:
    """Check a queue's own visibility timeout, if no setting overrides it."""
    rules = app.settings.for_queue(queue)
    if rules.visibility_timeout is None:
        too_short = TOO_SHORT.found(queue=queue, value=f"{own_timeout} s")
        yield from _check_haste(app.settings, rules, own_timeout, too_short)


def _check_haste(
    settings: Settings, rules: Rules, timeout: int, too_short: Finding
) -> Iterator[Finding]:
    """Find out whether the timeout, the threshold or the interval leaves no time for a third call.

    Values that the worker refuses give no finding here, because they are reported as faults.
    """
    terms, interval = rules.terms(timeout), settings.longest_sleep()
    if any(order_faults(terms, settings.interval)) or not is_too_short(terms, interval):
        return
    usual = replace(rules, threshold=None).terms(timeout)
    if is_too_short(usual, min(interval, DEFAULT_INTERVAL)):
        yield too_short
    else:
        value = (
            f"{terms.threshold:g} s before the timeout ends, while the keeper sleeps up to "
            f"{interval:g} s"
        )
        yield TOO_LATE.found(queue=too_short.queue, value=value)
