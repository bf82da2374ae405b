"""How the fleet judges a worker that does not exit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak.fleet import patience_ends, writes_indefinitely
from tests.soak.model import Harm

HANDLER = """\
  File "celery/apps/worker.py", line 343, in _handle_request
    callback(worker)
  File "celery/apps/worker.py", line 486, in on_cold_shutdown
    worker.consumer.pool.stop()
"""
WAITING = """\
  File "celery/concurrency/asynpool.py", line 384, in on_stop_not_started
    iterate_file_descriptors_safely(
"""
WRITING = """\
  File "celery/concurrency/asynpool.py", line 993, in _write_job
    Hw += send(header, Hw)
"""
OTHER_THREAD = "=====\n"


@pytest.mark.parametrize(
    ("log", "is_deadlock"),
    [
        (WRITING + HANDLER + WAITING, True),
        (HANDLER + WAITING, False),
        (WRITING + HANDLER, False),
        (WAITING + HANDLER + WRITING, False),
        (WRITING + OTHER_THREAD + WAITING, False),
    ],
)
def test_a_hang_is_celerys_deadlock_only_if_it_waits_for_a_job_that_it_was_writing(
    log: str, is_deadlock: bool
) -> None:
    assert writes_indefinitely(log) is is_deadlock


@pytest.mark.parametrize(
    ("harms", "ends"), [([], 160.0), ([("pause", 3.0), ("cut off", 5.0), ("break", 7.0)], 168.0)]
)
def test_a_worker_gets_extra_time_for_periods_in_which_it_could_not_exit(
    harms: list[tuple[str, float]], ends: float
) -> None:
    member: Any = SimpleNamespace(
        asked_to_exit_at=100.0,
        harms=[Harm(what=what, worker="w", at=90.0, until=90.0 + lasts) for what, lasts in harms],
    )
    assert patience_ends(member) == ends
