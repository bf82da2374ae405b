"""The status page of a worker: an HTTP server on threads of its own."""

from celery_sqs_heartbeat.observe.status.server import StatusServer

__all__ = ["StatusServer"]
