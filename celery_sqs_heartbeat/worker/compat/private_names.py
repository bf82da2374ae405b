"""All names of other packages that the heartbeat uses."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat import (
    celery,
    kombu,
    private_channel,
    private_polls,
    private_pools,
    private_state,
)
from celery_sqs_heartbeat.worker.compat.needs import Need

#: The names that any release of their package may change.
PRIVATE: tuple[Need, ...] = (
    *private_channel.PRIVATE,
    *private_polls.PRIVATE,
    *private_pools.PRIVATE,
    *private_state.PRIVATE,
)
NAMES: tuple[Need, ...] = (*kombu.NEEDS, *celery.NEEDS, *PRIVATE)
