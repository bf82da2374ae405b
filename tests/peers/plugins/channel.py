"""Has kombu's tests use our channel and transport in place of kombu's. No heartbeat is bound."""

from __future__ import annotations

from kombu.transport import SQS

from celery_sqs_heartbeat import transport
from celery_sqs_heartbeat.transport import base

SQS.Channel = transport.Channel
SQS.Transport = transport.Transport
SQS.QoS = base.QoS
transport.take_over()
