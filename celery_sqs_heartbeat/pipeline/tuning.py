"""What the command `tune` needs of a warehouse or a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.choosing import choose, needs_its_own
from celery_sqs_heartbeat.pipeline.comparing import Verdict, compare
from celery_sqs_heartbeat.pipeline.engines import Engine
from celery_sqs_heartbeat.pipeline.measuring import Survey, survey
from celery_sqs_heartbeat.pipeline.recommending import most_used_timeout
from celery_sqs_heartbeat.pipeline.replay import Worth
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, DURATIONS, SURVEYED, WORKERS
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

#: Returns the terms of a queue's or a task's leases, given the queue's own visibility timeout.
TermsOf = Callable[[str, str | None, int], LeaseTerms]


def survey_source(by: Engine, source: str, *, is_journal: bool | None = None) -> Survey:
    """Measure the fleet from a warehouse's tables, or from a journal's lines.

    Args:
        is_journal: None for what is not on this machine: it is looked for tables then.

    Raises:
        PipelineError: There is neither, or the engine can't run.
        FetchError: It is on S3, and can't be copied.
    """
    spark = by.start("sqs-heartbeat tune", source=source)
    if is_journal is None:
        is_journal = not by.has_tables(spark, source)
    if not is_journal:
        return _survey(by.warehouse(spark, source))
    with TemporaryDirectory(prefix="sqs-heartbeat-tune-") as folder:
        by.build(spark, source, folder, tables=(WORKERS, ATTEMPTS, DURATIONS))
        return _survey(by.warehouse(spark, folder))


def _survey(warehouse: Warehouse) -> Survey:
    return survey(*(warehouse.read(each) for each in SURVEYED))


def check(found: Survey, terms_of: TermsOf, worth: Worth) -> Iterator[Verdict]:
    """Return a verdict of each queue's settings, and of those of tasks that need their own."""
    for queue in found.queues:
        if not queue.timeouts:
            continue
        choice = choose(queue, worth)
        own_timeout = most_used_timeout(queue)
        yield compare(queue, terms_of(queue.queue, None, own_timeout), choice, worth)
        for task in found.tasks.get(queue.queue, ()):
            if needs_its_own(task, choice):
                terms = terms_of(queue.queue, task.task, own_timeout)
                yield compare(task, terms, choose(task, worth), worth)
