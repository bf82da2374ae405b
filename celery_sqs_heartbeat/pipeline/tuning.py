"""What the command `tune` needs of a warehouse or a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.core.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.choosing import choose, needs_its_own
from celery_sqs_heartbeat.pipeline.comparing import Verdict, compare
from celery_sqs_heartbeat.pipeline.measuring import Survey, survey
from celery_sqs_heartbeat.pipeline.replay import Worth
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, DURATIONS, EVENTS, WORKERS
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from celery_sqs_heartbeat.pipeline.tables.events import events_of, read_lines
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

#: Returns the terms of a queue's or a task's leases, given the queue's own visibility timeout.
TermsOf = Callable[[str, str | None, int], LeaseTerms]


def survey_source(spark: SparkSession, source: str) -> Survey:
    """Measure the fleet from a warehouse's tables, or else from a journal's lines."""
    warehouse = Warehouse(spark, source)
    durations = warehouse.read(DURATIONS)
    if not durations.isEmpty():
        return survey(durations, *(warehouse.read(each) for each in (ATTEMPTS, EVENTS, WORKERS)))
    events = events_of(read_lines(spark, source)).persist()
    workers = workers_of(events).persist()
    attempts = attempts_of(events, workers).persist()
    return survey(durations_of(attempts), attempts, events, workers)


def check(found: Survey, terms_of: TermsOf, worth: Worth) -> Iterator[Verdict]:
    """Return a verdict of each queue's settings, and of those of tasks that need their own."""
    for queue in found.queues:
        if not queue.timeouts:
            continue
        choice = choose(queue, worth)
        own_timeout = max(queue.timeouts, key=lambda each: (queue.timeouts[each], each))
        yield compare(queue, terms_of(queue.queue, None, own_timeout), choice, worth)
        for task in found.tasks.get(queue.queue, ()):
            if needs_its_own(task, choice):
                terms = terms_of(queue.queue, task.task, own_timeout)
                yield compare(task, terms, choose(task, worth), worth)
