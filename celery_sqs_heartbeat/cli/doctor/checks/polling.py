"""Checks how queues are polled."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind, of_fault
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts
from celery_sqs_heartbeat.leases.policy import longest_wait
from celery_sqs_heartbeat.sqs.adapter import read_attributes

#: kombu's own pause after an empty poll, in seconds.
USUAL_INTERVAL = 1

WRONG_OPTION = Kind(
    "SQSHB-E401",
    "a transport option is wrong",
    "A worker with --heartbeat-sqs lists all such faults and exits. The doctor did not check "
    "the queues.",
    "Correct it in broker_transport_options, then run the doctor again.",
)
SHORT_POLLS = Kind(
    "SQSHB-W402",
    "queues are polled without waiting",
    "Each worker polls each queue once in every polling_interval. This costs money even when "
    "there is no work, and a short poll may miss messages that are in the queue.",
    "Set wait_time_seconds to a value from 10 to 20 in broker_transport_options.",
)
CUT = Kind(
    "SQSHB-I403",
    "long polls are shortened",
    "A message that arrives at the end of a long poll must have its threshold left. A receive "
    "therefore waits no longer than visibility_timeout - threshold, and empty polls are more "
    "frequent.",
    "Nothing, or set a longer visibility timeout. 30 s allows polls of 20 s.",
)
PAUSES = Kind(
    "SQSHB-I404",
    "the worker pauses for a long time after an empty poll",
    "A message that arrives during the pause waits until polling_interval has passed. Long "
    "polls need no pause.",
    "Set polling_interval to 1 or less, and wait_time_seconds to a value from 10 to 20.",
)
ONLY_CREATED = Kind(
    "SQSHB-I405",
    "the transport option visibility_timeout applies only to new queues",
    "kombu uses it when it creates a queue. Existing and predefined queues keep their own.",
    "Set sqs_heartbeat_visibility_timeout, which applies to each receive.",
)

KINDS = (WRONG_OPTION, SHORT_POLLS, CUT, PAUSES, ONLY_CREATED)


def check_options(app: AppFacts) -> Iterator[Finding]:
    """Report the transport options with which a worker refuses to start."""
    for fault in app.option_faults:
        yield of_fault(WRONG_OPTION, fault)


def check_polling(app: AppFacts) -> Iterator[Finding]:
    """Check the transport options that control receives. All of them have valid values."""
    if app.wait_time == 0:
        yield SHORT_POLLS.found(setting="wait_time_seconds", value=app.wait_time)
    if app.polling_interval > USUAL_INTERVAL:
        yield PAUSES.found(setting="polling_interval", value=app.polling_interval)
    if app.created_timeout is not None:
        yield ONLY_CREATED.found(setting="visibility_timeout", value=app.created_timeout)


def check_waits(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    """Check whether a queue's visibility timeout has room for its long polls."""
    if not queue.attributes:
        return
    own_timeout = read_attributes(queue.attributes).visibility_timeout
    terms = app.settings.for_queue(queue.name).terms(own_timeout)
    wait = longest_wait(
        app.wait_time,
        visibility_timeout=terms.visibility_timeout,
        threshold=terms.threshold,
    )
    if wait < app.wait_time:
        yield CUT.found(
            queue=queue.name,
            setting="wait_time_seconds",
            value=f"{app.wait_time}, shortened to {wait}",
        )
