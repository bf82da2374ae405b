"""The settings: their names, rules and defaults, checked all at once."""

from celery_sqs_heartbeat.settings.conf_reading import read_settings
from celery_sqs_heartbeat.settings.rules import PREFIX, Rules, Settings

__all__ = ["PREFIX", "Rules", "Settings", "read_settings"]
