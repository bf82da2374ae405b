"""Opens a keeper in a second process, if its arguments can be used there."""

from __future__ import annotations

import random
from collections.abc import Callable

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.consumer.handover import fault_of
from celery_sqs_heartbeat.consumer.process_keeper import ProcessKeeper
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher, SqsCalls
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.sessions import try_session_function


def open_process(
    sqs: SqsCalls,
    *,
    terms: LeaseTerms | None,
    interval: float,
    clock: Callable[[], float],
    late_after: float | None,
    jitter: Callable[[], float],
    observer: Callable[[Event], None],
    dispatcher: Dispatcher | None,
    board: Board | None,
    on_late: Callable[[float], None],
    session: str | None,
) -> ProcessKeeper:
    """Return the keeper for the arguments of a `LeaseKeeper`.

    Raises:
        ConfigurationError: Another process cannot use some of them. Lists them all.
        SqsHeartbeatError: The system has no memory to share with it.
    """
    staying = {
        "clock": clock is not clocks.now,
        "jitter": jitter is not random.random,
        "dispatcher": dispatcher is not None,
        "board": board is not None,
    }
    faults = [
        f"{name}: can't be used by another process: leave it out, or leave out process=True"
        for name, is_given in staying.items()
        if is_given
    ]
    if session is not None:
        try_session_function(session, "session")
    if not isinstance(sqs, BotoSqs):
        faults.append(
            f"sqs: is a {type(sqs).__name__}, which another process can't use: "
            "pass a BotoSqs, or leave out process=True"
        )
    elif sqs.only_client is not None and (fault := fault_of(sqs.only_client, session)):
        faults.append(fault)
    if faults or not isinstance(sqs, BotoSqs):
        raise ConfigurationError(faults)
    return ProcessKeeper(
        sqs,
        terms=terms or LeaseTerms.of(30),
        interval=interval,
        late_after=late_after,
        observer=None if observer is log_event else observer,
        on_late=on_late,
        session=session,
    )
