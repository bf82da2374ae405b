"""Describes the worker, for the first line of a journal."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.worker.versions import running_versions


def describe_worker(worker: Any, settings: Settings) -> WorkerInfo:
    """Return a journal's description of a Celery worker, without secrets."""
    said = {
        field.name: repr(value)
        for field in fields(settings)
        if field.repr and (value := getattr(settings, field.name))
    }
    return WorkerInfo(
        node=worker.hostname,
        pool=type(worker.pool).__module__.rpartition(".")[2],
        concurrency=worker.concurrency,
        settings=said,
        versions=running_versions(),
    )
