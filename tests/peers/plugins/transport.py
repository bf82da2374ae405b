"""Has kombu's tests use our transport in place of kombu's. No heartbeat is bound."""

from __future__ import annotations

from kombu.transport import SQS

from celery_sqs_heartbeat import transport

SQS.Transport = transport.Transport
transport.register_transport()
