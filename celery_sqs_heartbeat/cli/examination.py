"""Reads the facts about an app, its queues and this machine, and checks them by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.cli import app_rules, fifo_rules, machine, permission_rules, queue_rules
from celery_sqs_heartbeat.cli.app import AppFacts, import_tasks, is_made_up, queue_names, read_app
from celery_sqs_heartbeat.cli.findings import Finding, rules_in, worst_first
from celery_sqs_heartbeat.cli.machine import read_machine
from celery_sqs_heartbeat.cli.queue_rules import timeouts_in, timeouts_of
from celery_sqs_heartbeat.cli.queues import QueueFacts, QueueInspector
from celery_sqs_heartbeat.worker.settings import naming, unknown_queues

_MODULES = (app_rules, fifo_rules, machine, permission_rules, queue_rules)
#: All rules, ordered by number.
_RULES = sorted(
    (rule for module in _MODULES for rule in rules_in(module)),
    key=lambda rule: rule.finding.id[-3:],
)
#: What they find, without a place, by the letter and the number.
FINDINGS = {rule.finding.id[-4:]: rule.finding for rule in _RULES}


def check(
    facts: Mapping[str, Any], *, app: AppFacts | None = None, queue: str | None = None
) -> Iterator[Finding]:
    """Yield what the rules find that need one of these facts.

    Args:
        facts: By name:
            any_app: An app, whatever its broker.
            app: An app whose broker is SQS.
            polled: One whose transport options are valid. Django's checks leave this out.
            installed: The versions on this machine, and the pool.
            asked: A queue, whatever SQS answered.
            queue: A queue whose attributes are known.
            fifo: A FIFO queue whose attributes are known.
            ordered: A FIFO queue that the settings keep in order, too.
            timeouts: The visibility timeouts of settings or of a queue.
            named: A queue that only the settings name, with `known`, the names in the app.
            queues: All queues together.
            machine: The state of this machine.
        app: What rules may need to know besides.
        queue: The queue that the findings are about, if any.
    """
    known = {"app": app, **facts}
    for rule in _RULES:
        if rule.facts <= known.keys() and not rule.facts.isdisjoint(facts):
            for found in rule.check(**{name: known[name] for name in rule.facts}):
                yield rule.finding.at(found.setting, found.value, found.queue or queue)


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
        return [FINDINGS["E007"]]
    broken = import_tasks(app)
    facts = read_app(app, pool=pool, concurrency=concurrency, broken_tasks=broken)
    findings = [*check_offline(facts), *check({"installed": facts})]
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


def check_offline(app: AppFacts) -> list[Finding]:
    """Return the findings that need no call to SQS."""
    facts: dict[str, Any] = {"any_app": app}
    if app.broker.is_sqs:
        facts |= {"app": app, "timeouts": list(timeouts_in(app.settings))}
    return list(check(facts))


def _examine_online(
    app: Any, facts: AppFacts, inspector: QueueInspector, chosen: Iterable[str]
) -> Iterator[Finding]:
    yield from check({"polled": facts})
    names: list[str] = []
    known: list[str] = []
    if facts.queue_fault is None:
        # Celery adds the others when they are looked up.
        known = list(app.amqp.queues)
        try:
            names = queue_names(app, chosen)
        except KeyError as error:
            yield FINDINGS["E006"].at(queue=str(error.args[0]))
        else:
            if not names:
                yield FINDINGS["E217"]
    asked = [replace(inspector.inspect(name), is_known=name in known) for name in names]
    for queue in asked:
        yield from check_queue(facts, queue)
    for name in unknown_queues(app, facts.settings.queues) if names else ():
        named = {"named": inspector.look(name), "known": tuple(app.amqp.queues)}
        yield from check(named, queue=name)
    yield from check({"queues": asked})
    yield from check({"machine": read_machine(facts.settings, asked)}, app=facts)


def check_queue(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    """Yield the findings about one queue."""
    facts: dict[str, Any] = {"asked": queue}
    if queue.attributes:
        facts |= {"queue": queue, "timeouts": list(timeouts_of(queue, app.settings))}
        if queue.is_fifo:
            facts["fifo"] = queue
            if app.settings.keeps_order(queue.name):
                facts["ordered"] = queue
    yield from check(facts, app=app, queue=queue.name)
