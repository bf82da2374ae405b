"""The doctor's checks. They take plain values and return findings. One module for each group."""

from __future__ import annotations

from celery_sqs_heartbeat.cli.doctor.checks import (
    broker,
    delivery,
    fifo,
    machine,
    permissions,
    places,
    polling,
    queue_kinds,
    setup,
    timing,
)

#: Every kind of finding, ordered by number.
KINDS = (
    *broker.KINDS,
    *setup.KINDS,
    *fifo.KINDS,
    *delivery.KINDS,
    *queue_kinds.KINDS,
    *timing.KINDS,
    *permissions.KINDS,
    *polling.KINDS,
    *machine.KINDS,
    *places.KINDS,
)
