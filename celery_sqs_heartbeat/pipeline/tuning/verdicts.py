"""Checks whether an app's settings are worse than the recommended ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.pipeline.tuning.advice import most_used_timeout
from celery_sqs_heartbeat.pipeline.tuning.choosing import choose, needs_its_own
from celery_sqs_heartbeat.pipeline.tuning.comparing import Verdict, compare
from celery_sqs_heartbeat.pipeline.tuning.replay import Worth
from celery_sqs_heartbeat.pipeline.tuning.survey import Survey

#: Returns the terms of a queue's or a task's leases, given the queue's own visibility timeout.
TermsOf = Callable[[str, str | None, int], LeaseTerms]


def verdicts_of(found: Survey, terms_of: TermsOf, worth: Worth) -> Iterator[Verdict]:
    """Return a verdict on each queue's settings, and on those of tasks that need their own."""
    for queue in found.queues:
        if not queue.timeouts:
            continue
        choice = choose(queue, worth)
        own_timeout = most_used_timeout(queue)
        yield compare(queue, terms_of(queue.queue, None, own_timeout), choice, worth)
        for task in found.tasks.get(queue.queue, ()):
            if needs_its_own(task, queue):
                terms = terms_of(queue.queue, task.task, own_timeout)
                yield compare(task, terms, choose(task, worth), worth)
