"""What a worker is that does not end."""

from __future__ import annotations

import pytest

from tests.soak.fleet import writes_for_ever

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
    ("log", "is_celerys"),
    [
        (WRITING + HANDLER + WAITING, True),
        (HANDLER + WAITING, False),
        (WRITING + HANDLER, False),
        (WAITING + HANDLER + WRITING, False),
        (WRITING + OTHER_THREAD + WAITING, False),
    ],
)
def test_a_worker_that_hangs_is_celerys_own_only_where_it_waits_for_what_it_was_writing(
    log: str, is_celerys: bool
) -> None:
    assert writes_for_ever(log) is is_celerys
