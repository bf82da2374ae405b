"""The engines that run the jobs: Spark and Sail. `engine.choice` chooses one of them."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.engine import intake, session
from celery_sqs_heartbeat.pipeline.engine.engine import Engine
from celery_sqs_heartbeat.pipeline.engine.sail import intake as sail_intake
from celery_sqs_heartbeat.pipeline.engine.sail import session as sail_session
from celery_sqs_heartbeat.pipeline.engine.sail.warehouse import SailWarehouse
from celery_sqs_heartbeat.pipeline.engine.temporary import by_size, in_files
from celery_sqs_heartbeat.pipeline.options import SAIL, SPARK
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

_ENGINES = {
    SPARK: Engine(session.new_session, Warehouse, intake.ingest, by_size),
    SAIL: Engine(
        sail_session.new_session, SailWarehouse, sail_intake.ingest, in_files(SailWarehouse)
    ),
}


def engine_of(name: str) -> Engine:
    """Return the engine of that name."""
    return _ENGINES[name]
