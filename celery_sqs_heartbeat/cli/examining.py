"""Examines an app: what the doctor does, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from celery_sqs_heartbeat.cli.asking import Asker
from celery_sqs_heartbeat.cli.checks import broker, delivery, machine, permissions, polling, queue
from celery_sqs_heartbeat.cli.checks.finding import Finding, worst_first
from celery_sqs_heartbeat.cli.facts import AppFacts, QueueFacts
from celery_sqs_heartbeat.cli.reading import Broker, queue_names, read_app


def examine(
    app: Any,
    *,
    queues: Iterable[str] = (),
    pool: str | None = None,
    concurrency: int | None = None,
) -> list[Finding]:
    """Return all findings about an app and its queues, the worst first.

    Imports the app's tasks and asks SQS.

    Args:
        queues: Those to look at; empty for all that the app consumes from.
        pool: The worker's pool, where its command line says another than the app.
        concurrency: Likewise.
    """
    app.loader.import_default_modules()
    facts = read_app(app, pool=pool, concurrency=concurrency)
    findings = [*examine_offline(facts), *machine.check_versions(facts)]
    if facts.is_sqs and facts.broken_broker is None:
        findings += polling.check_polling(facts)
        findings += _examine_queues(app, facts, queues)
    return worst_first(findings)


def examine_offline(facts: AppFacts) -> list[Finding]:
    """Return what can be found without SQS."""
    findings = [*broker.check_broker(facts)]
    return [*findings, *delivery.check_delivery(facts)] if facts.is_sqs else findings


def _examine_queues(app: Any, facts: AppFacts, chosen: Iterable[str]) -> Iterator[Finding]:
    try:
        names = queue_names(app, chosen)
    except KeyError as error:
        yield broker.NO_QUEUE.found(queue=str(error.args[0]))
        return
    asker = Asker(Broker.of_app(app))
    asked = [asker.ask(name) for name in names]
    for each in asked:
        yield from queue.check_queue(facts, each)
        yield from permissions.check_permissions(each)
        yield from polling.check_waits(facts, each)
    yield from permissions.check_untried(asked)
    yield from machine.check_clock(_skews(asked))


def _skews(asked: Iterable[QueueFacts]) -> list[float | None]:
    """Return by how much our clock was ahead at each answer that came."""
    answers = [answer for each in asked for answer in (each.found, *each.tries.values())]
    return [answer.skew for answer in answers if answer.has_come]
