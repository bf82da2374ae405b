"""Gives the embedded worker of Celery's integration tests the heartbeat."""

from __future__ import annotations

from typing import Any

import pytest
from celery.contrib.testing.worker import test_worker_starting

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.link.held_messages import HeldMessage, HeldMessages

#: Short, so that tests with tasks of some seconds need extensions.
_VISIBILITY_TIMEOUT = 6

_add = HeldMessages.add
_leased: list[str] = []


def _counted(self: HeldMessages, lease: Lease, message: Any) -> HeldMessage:
    _leased.append(lease.message_id)
    return _add(self, lease, message)


HeldMessages.add = _counted  # type: ignore[method-assign]


@test_worker_starting.connect(weak=False)
def _install(sender: Any, **_: Any) -> None:
    install(sender)
    sender.conf.update(
        sqs_heartbeat_enabled=True, sqs_heartbeat_visibility_timeout=_VISIBILITY_TIMEOUT
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which no message was leased: it would prove nothing."""
    if session.testscollected and not _leased:
        pytest.exit("the worker had no lease on any message", returncode=4)
