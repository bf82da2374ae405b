"""The pipeline's errors."""

from __future__ import annotations

from celery_sqs_heartbeat.errors import SqsHeartbeatError


class PipelineError(SqsHeartbeatError):
    """The pipeline can't run as requested. The message has the way out."""
