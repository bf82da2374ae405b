"""Reads the facts about an app, its queues and this machine, and checks them by the rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.cli.app import AppFacts, import_tasks, is_made_up, queue_names, read_app
from celery_sqs_heartbeat.cli.app_rules import ANY_BROKER, APPS, POLLING, SQS, no_app
from celery_sqs_heartbeat.cli.fifo_rules import FIFO, ORDERED
from celery_sqs_heartbeat.cli.findings import Finding, worst_first
from celery_sqs_heartbeat.cli.machine import MACHINE, VERSIONS, read_machine
from celery_sqs_heartbeat.cli.permission_rules import (
    ASKED,
    NAMED,
    TOGETHER,
    UNASKED,
    no_queue,
    nothing_consumed,
)
from celery_sqs_heartbeat.cli.queue_rules import READ, TIMING
from celery_sqs_heartbeat.cli.queues import QueueFacts, QueueInspector
from celery_sqs_heartbeat.worker.settings import naming, unknown_queues

_OF_APPS = (APPS, ANY_BROKER, SQS, POLLING, VERSIONS, MACHINE)
_OF_QUEUES = (UNASKED, NAMED, ASKED, TOGETHER, READ, TIMING, FIFO, ORDERED)
#: All rules, ordered by number.
RULES = sorted(itertools.chain(*_OF_APPS, *_OF_QUEUES), key=lambda rule: rule.id[-3:])


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
        return [no_app.found()]
    broken = import_tasks(app)
    facts = read_app(app, pool=pool, concurrency=concurrency, broken_tasks=broken)
    findings = [*check_offline(facts), *VERSIONS.check(facts)]
    if facts.broker.sqs is not None:
        findings += _examine_online(app, facts, QueueInspector(facts.broker.sqs), queues)
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
    findings = [*ANY_BROKER.check(facts)]
    if facts.broker.is_sqs:
        findings += [*SQS.check(facts), *TIMING.check(facts)]
    return findings


def _examine_online(
    app: Any, facts: AppFacts, inspector: QueueInspector, chosen: Iterable[str]
) -> Iterator[Finding]:
    yield from POLLING.check(facts)
    names: list[str] = []
    known: list[str] = []
    if facts.queue_fault is None:
        # Celery adds the others when they are looked up.
        known = list(app.amqp.queues)
        try:
            names = queue_names(app, chosen)
        except KeyError as error:
            yield no_queue.found(queue=str(error.args[0]))
        else:
            if not names:
                yield nothing_consumed.found()
    asked = [replace(inspector.inspect(name), is_known=name in known) for name in names]
    for queue in asked:
        yield from check_queue(facts, queue)
    for name in unknown_queues(app, facts.settings.queues) if names else ():
        yield from NAMED.check(inspector.look(name), tuple(app.amqp.queues), queue=name)
    yield from TOGETHER.check(asked)
    yield from MACHINE.check(facts, read_machine(facts.settings, asked))


def check_queue(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    """Yield the findings about one queue."""
    tables = [ASKED]
    if queue.attributes:
        tables += [READ, TIMING]
        if queue.is_fifo:
            tables += [FIFO, *([ORDERED] if app.settings.keeps_order(queue.name) else [])]
    for table in tables:
        yield from table.check(app, queue, queue=queue.name)
