"""`celery -A proj sqs-heartbeat`: commands for people who run workers.

Every `celery` command imports this module, so it imports only click.
"""

from celery_sqs_heartbeat.cli.group import sqs_heartbeat

__all__ = ["sqs_heartbeat"]
