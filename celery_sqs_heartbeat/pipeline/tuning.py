"""What the command `tune` needs of a warehouse or a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory

from celery_sqs_heartbeat.core.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.choosing import choose, needs_its_own
from celery_sqs_heartbeat.pipeline.comparing import Verdict, compare
from celery_sqs_heartbeat.pipeline.engines import Engine
from celery_sqs_heartbeat.pipeline.measuring import Survey, survey
from celery_sqs_heartbeat.pipeline.places import is_out_of_reach
from celery_sqs_heartbeat.pipeline.replay import Worth
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, DURATIONS, EVENTS, WORKERS
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

#: Returns the terms of a queue's or a task's leases, given the queue's own visibility timeout.
TermsOf = Callable[[str, str | None, int], LeaseTerms]


def survey_source(by: Engine, source: str) -> Survey:
    """Measure the fleet from a warehouse's tables, or else from a journal's lines.

    Raises:
        PipelineError: There is neither, or the engine can't run.
        FetchError: It is on S3, and can't be copied.
    """
    spark = by.start("sqs-heartbeat tune", source=source)
    if not is_out_of_reach(spark, source):
        warehouse = by.warehouse(spark, source)
        if not warehouse.read(DURATIONS).isEmpty():
            return _survey(warehouse)
    with TemporaryDirectory(prefix="sqs-heartbeat-tune-") as folder:
        by.build(spark, source, folder, tables=(WORKERS, ATTEMPTS, DURATIONS))
        return _survey(by.warehouse(spark, folder))


def _survey(warehouse: Warehouse) -> Survey:
    return survey(*(warehouse.read(each) for each in (DURATIONS, ATTEMPTS, EVENTS, WORKERS)))


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
