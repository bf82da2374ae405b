"""The status page of a worker: an HTTP server on its own threads."""

from celery_sqs_heartbeat.observe.status.server import StatusServer

__all__ = ["StatusServer"]
