"""Orders from a test to a running worker of `proj`. SQS has no broadcast.

The worker loads this module by the setting `imports`. `Scene.order` gives the orders.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from botocore.exceptions import EndpointConnectionError
from celery import bootsteps

from celery_sqs_heartbeat.transport.binding import bound
from tests.acceptance.proj import app, note

#: How often the worker looks for an order, in seconds.
LOOKS_EVERY = 0.05


class TakesOrders(bootsteps.StartStopStep):
    """Carries out the order in the file beside the ledger, on the worker's event loop."""

    requires = {"celery.worker.consumer.tasks:Tasks"}  # noqa: RUF012

    def register_with_event_loop(self, c: Any, hub: Any) -> None:
        self._consumer = c
        hub.call_repeatedly(LOOKS_EVERY, self._look)

    def _look(self) -> None:
        file = Path(f"{os.environ['PROJ_LEDGER']}.order")
        if file.exists():
            what, *args = json.loads(file.read_text())
            file.unlink()
            getattr(self, what)(*args)

    def count_leases(self) -> None:
        heartbeat = bound()
        assert heartbeat is not None
        note("leases", str(len(heartbeat.keeper)))

    def restart_pool(self) -> None:
        self._consumer.controller.reload()

    def lose_connection(self) -> None:
        raise EndpointConnectionError(endpoint_url="lost on purpose")


app.steps["consumer"].add(TakesOrders)
