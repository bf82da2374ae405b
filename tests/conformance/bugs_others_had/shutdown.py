"""What the worker does to the keeper when it shuts down."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep


def shut_down_warmly() -> None:
    """Stop the worker's step, as a warm shutdown does at once while tasks still run.

    The step is made without its worker: the test is about the effect of `stop` on a keeper,
    for which it must not need the worker.
    """
    SqsHeartbeatStep.__new__(SqsHeartbeatStep).stop(None)
