"""The engines that run the jobs: Spark, the default, and Sail."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.engine import intake, session
from celery_sqs_heartbeat.pipeline.engine.engine import Engine
from celery_sqs_heartbeat.pipeline.engine.sail import intake as sail_intake
from celery_sqs_heartbeat.pipeline.engine.sail import session as sail_session
from celery_sqs_heartbeat.pipeline.engine.sail.warehouse import SailWarehouse
from celery_sqs_heartbeat.pipeline.options import SAIL, SPARK
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

_ENGINES = {
    SPARK: Engine(session.new_session, Warehouse, intake.ingest),
    SAIL: Engine(sail_session.new_session, SailWarehouse, sail_intake.ingest),
}


def engine_of(name: str) -> Engine:
    """Return the engine that the option `--engine` names."""
    return _ENGINES[name]
