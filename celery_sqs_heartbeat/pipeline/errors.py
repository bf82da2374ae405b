"""What the pipeline's users may meet."""

from __future__ import annotations

from celery_sqs_heartbeat.errors import SqsHeartbeatError


class PipelineError(SqsHeartbeatError):
    """The pipeline can't run as it was asked to. The message names the way out."""
