"""The doctor's checks: values in, findings out. One module for each group."""

from __future__ import annotations

from celery_sqs_heartbeat.cli.checks import (
    broker,
    delivery,
    machine,
    permissions,
    polling,
    queue,
)

#: Every kind of finding there is, in the order of their numbers.
KINDS = (
    *broker.KINDS,
    *delivery.KINDS,
    *queue.KINDS,
    *permissions.KINDS,
    *polling.KINDS,
    *machine.KINDS,
)
