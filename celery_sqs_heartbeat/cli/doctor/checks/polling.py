"""Checks of how queues are polled."""

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
    "a worker with --heartbeat-sqs lists all such faults and exits; the queues were not checked",
    "correct it in broker_transport_options, and run the doctor again",
)
SHORT_POLLS = Kind(
    "SQSHB-W402",
    "queues are polled without waiting",
    "each worker makes a call a queue in every polling_interval, which costs money even when "
    "there is nothing to do, and a short poll may miss messages that are there",
    "set wait_time_seconds to 10 to 20 in broker_transport_options",
)
CUT = Kind(
    "SQSHB-I403",
    "long polls are cut",
    "a message that comes at the end of a long poll must have its threshold left, so a receive "
    "waits for no longer than visibility_timeout - threshold: empty polls are more frequent",
    "nothing, or a longer visibility timeout: 30 s allows polls of 20 s",
)
PAUSES = Kind(
    "SQSHB-I404",
    "the worker pauses for long after an empty poll",
    "a message that comes then waits for polling_interval to end; long polls need no pause",
    "set polling_interval to 1 or less, and wait_time_seconds to 10 to 20",
)
ONLY_CREATED = Kind(
    "SQSHB-I405",
    "the transport option visibility_timeout counts for new queues only",
    "kombu uses it where it creates a queue: those that are there, or predefined, keep their own",
    "set sqs_heartbeat_visibility_timeout, which goes with each receive",
)
BLOCKING = Kind(
    "SQSHB-W406",
    "long polls of kombu 5.5 block the worker",
    "the end of a prefork task is noticed up to three long polls later",
    "update kombu, or set wait_time_seconds to 1 in broker_transport_options",
)

KINDS = (WRONG_OPTION, SHORT_POLLS, CUT, PAUSES, ONLY_CREATED, BLOCKING)


def check_options(app: AppFacts) -> Iterator[Finding]:
    """Check the transport options by the rules of a worker's start."""
    for fault in app.option_faults:
        yield of_fault(WRONG_OPTION, fault)


def check_polling(app: AppFacts) -> Iterator[Finding]:
    """Check the transport options that decide over receives. None of them is wrong."""
    if app.wait_time == 0:
        yield SHORT_POLLS.found(setting="wait_time_seconds", value=app.wait_time)
    elif app.versions.get("kombu", "").startswith("5.5.") and app.wait_time > 1:
        yield BLOCKING.found(setting="wait_time_seconds", value=app.wait_time)
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
            queue=queue.name, setting="wait_time_seconds", value=f"{app.wait_time}, cut to {wait}"
        )
