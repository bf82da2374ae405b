"""Records events of messages and leases, for people and for analysis.

Every event is a line of JSON in a segment, which is a plain file. Full segments are compressed,
and may be uploaded to S3. See `docs/journal.md`.
"""

from __future__ import annotations

from celery_sqs_heartbeat.journal.identity import WorkerInfo
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.opening import open_journal
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.journal.stats import JournalStats

__all__ = ["Journal", "JournalStats", "WorkerInfo", "open_journal", "read_journal"]
