"""The doctor's rules about a queue's attributes, and about visibility timeouts."""
# ruff: noqa: D403, D415 - docstrings are what people read.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from celery_sqs_heartbeat.cli.app import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.findings import Found, faults, when
from celery_sqs_heartbeat.cli.queues import QueueFacts
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.policy import MIN_CALL_SECONDS, call_patience, longest_wait
from celery_sqs_heartbeat.settings import PREFIX, Rules, Settings
from celery_sqs_heartbeat.settings.rules import DEFAULT_INTERVAL, order_faults

#: The most messages in flight of one queue, standard or FIFO (SQS Developer Guide, "Amazon SQS
#: message quotas", and "Avoiding large message backlogs" for FIFO, where it was 20,000 until 2024).
IN_FLIGHT_QUOTA = 120_000
#: From this part of it on, the doctor warns.
IN_FLIGHT_PART = 0.8
#: A smaller maxReceiveCount leaves no spare receive for a lost worker.
FEW_RECEIVES = 3
#: A visibility timeout longer than this is long, in seconds: messages of a dead worker wait for it.
LONG_TIMEOUT = 300
#: A retention period up to this is short, in seconds: an outage over a weekend exceeds a day.
SHORT_RETENTION = 86_400
#: The most tasks that a finding names. It gives only the count of the rest.
_MOST_NAMED = 5


def p201(queue: QueueFacts) -> list[Found]:
    """the queue exists

    The doctor read its attributes.
    """
    return [Found(value=f"visibility timeout {queue.own_timeout} s")]


def e203(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """the settings do not fit the queue

    A worker that consumes from it refuses to start.

    Fix: Change the named setting, or the queue's visibility timeout.
    """
    sentences = app.settings.faults_with(queue.name, queue.own_timeout, app.leases)
    return faults(each.removeprefix(f"queue {queue.name!r}: ") for each in sentences)


def w204(queue: QueueFacts) -> list[Found]:
    """the queue has no redrive policy

    If a task always fails or kills its worker, SQS delivers its message again and again.

    Fix: Give it a dead-letter queue: a RedrivePolicy with a maxReceiveCount of about 5.
    """
    return when(queue.max_receive_count is None and not queue.is_fifo)


def w205(queue: QueueFacts) -> list[Found]:
    """maxReceiveCount is low

    Every receive counts, including those of killed workers and each wait at SQS for an ETA.
    Messages may reach the dead-letter queue although nothing is wrong with them.

    Fix: Raise maxReceiveCount in the RedrivePolicy to about 5.
    """
    count = queue.max_receive_count
    return when(count is not None and count < FEW_RECEIVES, value=count)


def i206(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """messages are hidden for a long time

    If a worker and its keeper die, for example because their machine fails, no one else can run
    their messages until this time has passed. With the heartbeat, a minute is enough.

    Fix: Set sqs_heartbeat_visibility_timeout, or the queue's own visibility timeout, to about 30 s.
    """
    timeout = _timeout(app, queue)
    return when(timeout > LONG_TIMEOUT, value=f"{timeout} s")


def e207(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """messages expire before they can be delivered again

    The retention period counts from the send. If it is not longer than the visibility timeout, SQS
    deletes a message before a second receive.

    Fix: Raise the queue's MessageRetentionPeriod to several days, or lower the visibility timeout.
    """
    retention, timeout = queue.number("MessageRetentionPeriod"), _timeout(app, queue)
    value = f"retention period {retention} s, visibility timeout {timeout} s"
    return when(retention is not None and retention <= timeout, value=value)


def w208(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """the retention period is short

    It counts from the send and continues through releases, ETAs and outages. SQS deletes older
    messages without a trace, even while their tasks run.

    Fix: Raise the queue's MessageRetentionPeriod to several days. The maximum is 1209600 s.
    """
    retention, timeout = queue.number("MessageRetentionPeriod"), _timeout(app, queue)
    scopes = (None, *app.settings.tasks)
    held = max(app.settings.for_task(queue.name, task).terms(timeout).max_lease for task in scopes)
    is_short = retention is not None and timeout < retention <= max(SHORT_RETENTION, held)
    return when(is_short, value=f"{retention} s, and messages are held for up to {held:g} s")


def _timeout(app: AppFacts, queue: QueueFacts) -> int:
    return app.settings.for_queue(queue.name).terms(queue.own_timeout).visibility_timeout


def i209(queue: QueueFacts) -> list[Found]:
    """the queue is FIFO

    While a message is in flight, SQS delivers nothing behind it in its message group. A long task
    or a release delay delays the whole group. Once a lease has expired, SQS refuses to delete its
    message.

    Fix: Give messages that need no order their own message groups.
    """
    return when(queue.is_fifo)


def w210(queue: QueueFacts) -> list[Found]:
    """many messages are in flight

    SQS allows at most 120,000 at a time. Beyond that a long poll returns nothing, without an error.

    Fix: Lower worker_prefetch_multiplier, set worker_eta_task_limit, or split the queue.
    """
    count, quota = queue.in_flight, IN_FLIGHT_QUOTA
    return when(quota * IN_FLIGHT_PART <= count < quota, value=f"{count:,}")


def e211(queue: QueueFacts) -> list[Found]:
    """SQS allows no more messages in flight

    Workers receive nothing until messages are deleted or released.

    Fix: Lower worker_prefetch_multiplier, set worker_eta_task_limit, or split the queue.
    """
    return when(queue.in_flight >= IN_FLIGHT_QUOTA, value=f"{queue.in_flight:,}")


def i212(queue: QueueFacts) -> list[Found]:
    """the queue is encrypted with a KMS key

    Without kms:Decrypt a worker receives nothing, and without kms:GenerateDataKey it sends nothing.

    Fix: Grant both on the key. `celery -A proj sqs-heartbeat iam` prints the policy.
    """
    return when(queue.encryption_key, value=queue.encryption_key)


def i218(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """tasks retry themselves, and the queue counts receives

    A retry is a new message, and SQS counts its receives from 1. max_retries limits the retries,
    and maxReceiveCount the receives of each message. Only the last message can become a dead
    letter.

    Fix: For each task, use one of the two: retries, or errors that leave the message in the queue,
    with a release policy.
    """
    count = queue.max_receive_count
    if count is None:
        return []
    sent = _retried(app, queue, is_released=False)
    return _of_tasks(count, [_runs(task, app, count) for task in sent])


def w032(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """messages become dead letters before their retries are used up

    On this queue a retry is another receive of the same message. It gets at most max_retries + 1 or
    maxReceiveCount receives, the smaller of the two.

    Fix: Raise maxReceiveCount in the RedrivePolicy to max_retries + 1, or lower max_retries.
    """
    count = queue.max_receive_count
    if count is None:
        return []
    cut_short = [
        f"{task.name} (max_retries {task.retries})"
        for task in _retried(app, queue, is_released=True)
        if task.retries is not None and task.retries >= count
    ]
    return _of_tasks(count, cut_short)


def _retried(app: AppFacts, queue: QueueFacts, *, is_released: bool) -> list[TaskFacts]:
    """Return the tasks that retry themselves, by a release or not, and outlive their start."""
    return [
        task
        for task in app.tasks
        if task.acks_late
        and task.retries != 0
        and app.settings.releases_retries(queue.name, task.name) is is_released
    ]


def _of_tasks(max_receive_count: int, said: Sequence[str]) -> list[Found]:
    """Return a finding that names the first tasks, and counts the rest; if there are any."""
    more = [f"and {len(said) - _MOST_NAMED} more"] if len(said) > _MOST_NAMED else []
    value = "; ".join([f"maxReceiveCount {max_receive_count}", *said[:_MOST_NAMED], *more])
    return when(said, value=value)


def _runs(task: TaskFacts, app: AppFacts, max_receive_count: int) -> str:
    """Return how often a task may run if its retries are new messages."""
    if task.retries is None:
        return f"{task.name} (max_retries None): retried indefinitely, never a dead letter"
    messages = task.retries + 1
    # Each retry acks the message before it, so only the last message is received again.
    failing = messages if app.acks_on_failure else task.retries + max_receive_count
    end = "deleted" if app.acks_on_failure else "a dead letter"
    return (
        f"{task.name} (max_retries {task.retries}): {end} after {failing} failed runs, "
        f"or up to {messages * max_receive_count} runs if workers are also lost"
    )


def i221(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """maxReceiveCount does not fit the prefetch

    A worker that shuts down releases the messages that wait behind its running tasks, and the next
    worker may be shut down, too: each costs a receive. On its last one, a message is run during the
    shutdown, or sent again.

    Fix: Allow one receive for each message that a process prefetches, and another in case a worker
    dies: set maxReceiveCount to worker_prefetch_multiplier + 1, or lower the multiplier.
    """
    count, multiplier = queue.max_receive_count, app.prefetch_multiplier
    value = f"{count}, and worker_prefetch_multiplier is {multiplier}"
    return when(count is not None and count <= multiplier, value=value)


def i403(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """long polls are shortened

    A message that arrives at the end of a long poll must have its threshold left. A receive
    therefore waits no longer than visibility_timeout - threshold, and empty polls are more
    frequent.

    Fix: Nothing, or set a longer visibility timeout. 30 s allows polls of 20 s.
    """
    terms, wait = app.settings.for_queue(queue.name).terms(queue.own_timeout), app.broker.wait_time
    cut = longest_wait(wait, visibility_timeout=terms.visibility_timeout, threshold=terms.threshold)
    return when(cut < wait, "wait_time_seconds", f"{wait}, shortened to {cut}")


def w213(app: AppFacts, timeouts: Sequence[Timeout]) -> list[Found]:
    """the visibility timeout is too short

    If two calls to SQS hang, there is no time for a third one before the message becomes visible
    again. Its task then starts twice.

    Fix: Set the visibility timeout to about 30 s. With the default threshold and interval, the
    shortest that leaves enough time is 15 s.
    """
    return [each.found for each, terms in _hasty(app.settings, timeouts) if terms is None]


def w214(app: AppFacts, timeouts: Sequence[Timeout]) -> list[Found]:
    """extensions begin too late

    If two calls to SQS hang, there is no time for a third one before the message becomes visible
    again. Its task then starts twice.

    Fix: Remove the threshold and the interval that are set. Or raise sqs_heartbeat_threshold and
    lower sqs_heartbeat_interval.
    """
    sleeps = f"while the keeper sleeps up to {app.settings.longest_sleep():g} s"
    return [
        Found(None, f"{terms.threshold:g} s before the timeout ends, {sleeps}", each.found.queue)
        for each, terms in _hasty(app.settings, timeouts)
        if terms is not None
    ]


class Timeout(NamedTuple):
    """A visibility timeout, where it is set, and the rules that apply there."""

    found: Found
    seconds: int
    rules: Rules


def timeouts_in(settings: Settings) -> Iterator[Timeout]:
    """Yield the timeouts that settings set."""
    scopes = [(Found(f"{PREFIX}visibility_timeout"), settings.rules, settings.rules)]
    for name, own in settings.queues.items():
        found = Found(f"{PREFIX}queues[{name!r}]['visibility_timeout']", queue=name)
        scopes.append((found, own, settings.for_queue(name)))
    for name, own in settings.tasks.items():
        found = Found(f"task {name!r}: sqs_heartbeat['visibility_timeout']")
        scopes.append((found, own, settings.rules.under(own)))
    for found, own, rules in scopes:
        if (seconds := own.visibility_timeout) is not None:
            yield Timeout(found._replace(value=seconds), seconds, rules)


def timeouts_of(queue: QueueFacts, settings: Settings) -> Iterator[Timeout]:
    """Yield the queue's own timeout, if no setting replaces it."""
    rules = settings.for_queue(queue.name)
    if rules.visibility_timeout is None:
        yield Timeout(Found(value=f"{queue.own_timeout} s"), queue.own_timeout, rules)


def _hasty(
    settings: Settings, timeouts: Iterable[Timeout]
) -> Iterator[tuple[Timeout, LeaseTerms | None]]:
    """Yield each timeout that leaves no time for a third call.

    With it come the terms if it is long enough, but not for the threshold or the interval that is
    set. Values that the worker refuses are reported as faults, and not here.
    """
    interval = settings.longest_sleep()
    for each in timeouts:
        terms = each.rules.terms(each.seconds)
        if any(order_faults(terms, settings.interval)) or not is_too_short(terms, interval):
            continue
        usual = replace(each.rules, threshold=None).terms(each.seconds)
        is_short = is_too_short(usual, min(interval, DEFAULT_INTERVAL))
        yield each, None if is_short else terms


def is_too_short(terms: LeaseTerms, interval: float) -> bool:
    """Return whether two calls that hang leave no time for a third one.

    An extension is due at the threshold. From then on, the keeper may sleep for its interval, then
    waits for the calls that hang, and needs the time of a short call for another one.
    """
    left = terms.threshold - interval - 2 * call_patience(terms.threshold)
    return terms.extend and terms.visibility_timeout > 0 and round(left, 6) < MIN_CALL_SECONDS
