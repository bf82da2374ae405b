"""Runs all checks of the doctor on an app, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from celery_sqs_heartbeat.cli.app.app_contents import import_tasks, is_made_up, queue_names
from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.app.app_reader import read_app
from celery_sqs_heartbeat.cli.app.offline_broker import Broker
from celery_sqs_heartbeat.cli.doctor.checks import (
    broker,
    delivery,
    machine,
    permissions,
    places,
    polling,
    queue,
    queue_kinds,
    setup,
    timing,
)
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, worst_first
from celery_sqs_heartbeat.cli.doctor.place_probe import probe_places
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts
from celery_sqs_heartbeat.cli.queues.queue_inspector import QueueInspector
from celery_sqs_heartbeat.worker.settings import naming, unknown_queues


def examine(
    app: Any,
    *,
    queues: Iterable[str] = (),
    pool: str | None = None,
    concurrency: int | None = None,
) -> list[Finding]:
    """Return all findings about an app and its queues, the worst first.

    Imports the app's tasks and calls SQS.

    Args:
        queues: The queues to check; empty for all that the app consumes from.
        pool: The worker's pool, if its command line overrides the app's.
        concurrency: The worker's concurrency, if its command line overrides the app's.
    """
    if is_made_up(app):
        return [broker.NO_APP.found()]
    broken = import_tasks(app)
    facts = read_app(app, pool=pool, concurrency=concurrency, broken_tasks=broken)
    findings = [*check_offline(facts), *machine.check_versions(facts)]
    if facts.is_sqs and facts.broker_fault is None:
        findings += polling.check_polling(facts)
        findings += places.check_places(facts.settings, probe_places(facts.settings))
        if facts.queue_fault is None:
            findings += _examine_queues(app, facts, queues)
    rename = naming(app)
    return worst_first(finding.naming(rename) for finding in findings)


def examine_offline(app: Any, *, broken_tasks: str | None = None) -> list[Finding]:
    """Return the findings about an app that need no call to SQS.

    Args:
        broken_tasks: The return value of `import_tasks`.
    """
    rename = naming(app)
    findings = check_offline(read_app(app, broken_tasks=broken_tasks))
    return [finding.naming(rename) for finding in findings]


def check_offline(facts: AppFacts) -> list[Finding]:
    """Return the findings that need no call to SQS."""
    findings = [*broker.check_broker(facts), *setup.check_setup(facts)]
    if facts.is_sqs:
        findings += [
            *polling.check_options(facts),
            *delivery.check_delivery(facts),
            *timing.check_set_timeouts(facts),
        ]
    return findings


def _examine_queues(app: Any, facts: AppFacts, chosen: Iterable[str]) -> Iterator[Finding]:
    # Celery adds the others when they are looked up.
    known = set(app.amqp.queues)
    try:
        names = queue_names(app, chosen)
    except KeyError as error:
        yield broker.NO_QUEUE.found(queue=str(error.args[0]))
        return
    if not names:
        yield queue_kinds.NONE.found()
        return
    inspector = QueueInspector(Broker.of_app(app))
    asked = [inspector.inspect(name) for name in names]
    unknown = [inspector.look(name) for name in unknown_queues(app, facts.settings.queues)]
    yield from setup.check_names(unknown, app.amqp.queues)
    yield from permissions.check_complete(asked)
    for each in asked:
        yield from queue.check_queue(facts, each, is_known=each.name in known)
        yield from permissions.check_permissions(each)
        yield from polling.check_waits(facts, each)
    yield from permissions.check_untried(asked)
    yield from machine.check_clock(_skews(asked))


def _skews(asked: Iterable[QueueFacts]) -> list[float | None]:
    """Return how many seconds our clock was ahead at each answer from SQS."""
    answers = [answer for each in asked for answer in (each.found, *each.tries.values())]
    return [answer.skew for answer in answers if answer.has_come]
