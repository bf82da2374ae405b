"""Writes down what happens to messages and leases, for people and for analyses.

Every event is a line of JSON in segments of plain files, which are compressed when they
are full and may be shipped to S3. See `docs/journal.md`.
"""

from __future__ import annotations

from celery_sqs_heartbeat.journal.identity import WorkerInfo
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.opening import open_journal
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.journal.stats import JournalStats

__all__ = ["Journal", "JournalStats", "WorkerInfo", "open_journal", "read_journal"]
