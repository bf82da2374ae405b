"""Tasks of celery-batches: they run with the requests of several messages at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from celery_batches import Batches, SimpleRequest

from tests.acceptance.proj import app, note, starts, wait_to_end

#: Messages of a full batch.
FULL = 10
#: How long a batch that is not full waits for more, in seconds.
WAIT = float(os.environ["PROJ_BATCHES"])


def _note(what: str, requests: Sequence[SimpleRequest]) -> None:
    for request in requests:
        note(what, request.args[0])


@app.task(
    base=Batches, flush_every=FULL, flush_interval=WAIT, name="tests.acceptance.proj.batch_hold"
)
def batch_hold(requests: Sequence[SimpleRequest]) -> None:
    """Runs until the test lets it end."""
    _note("start", requests)
    wait_to_end("batch")
    _note("end", requests)


@app.task(
    base=Batches, flush_every=FULL, flush_interval=WAIT, name="tests.acceptance.proj.batch_die"
)
def batch_die(requests: Sequence[SimpleRequest]) -> None:
    """Kills its process when it runs for the first time."""
    _note("start", requests)
    if starts(requests[0].args[0]) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _note("end", requests)
