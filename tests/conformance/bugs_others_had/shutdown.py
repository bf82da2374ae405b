"""What the worker does to the keeper when it is told to end."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep


def shut_down_warmly() -> None:
    """Stop the worker's step, as a warm shutdown does at once while tasks still run.

    The step is made without its worker: what its `stop` does to a keeper is the point, and
    it must need nothing of it.
    """
    SqsHeartbeatStep.__new__(SqsHeartbeatStep).stop(None)
