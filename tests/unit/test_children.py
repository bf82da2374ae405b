"""A pool process ends with the worker that forked it, even if the worker dies very early.

No other process ends with the one that started it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.workers import ROOT

#: Forks, and dies before the child calls `end_with_parent`.
ORPHAN = """
import os, time
from celery_sqs_heartbeat.worker.step import end_with_parent, note_worker
note_worker()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
end_with_parent()
print("it lives", flush=True)
"""
#: The same, with a parent that lives.
CHILD = """
import os
from celery_sqs_heartbeat.worker.step import end_with_parent, note_worker
note_worker()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    end_with_parent()
    print("it lives", flush=True)
"""
#: A worker with a solo pool, whose process loses its parent when the pool exists.
SOLO = """
import os, time
from celery.concurrency.solo import TaskPool
from celery_sqs_heartbeat.current.sharing import VARIABLE
from celery_sqs_heartbeat.worker.step import note_worker, prepare_pool_processes
prepare_pool_processes()
reader, writer = os.pipe()
if os.fork():
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
note_worker()
os.environ[VARIABLE] = "a table"
parent = os.getppid()
TaskPool()
os.write(writer, b".")
while os.getppid() == parent:
    time.sleep(0.01)
print("it lives", flush=True)
"""

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can do it")


lives = "it lives\n"


@linux
@pytest.mark.parametrize(("script", "said"), [(ORPHAN, ""), (CHILD, lives), (SOLO, lives)])
def test_a_pool_process_ends_with_its_worker_and_a_solo_worker_does_not_end_with_its_parent(
    script: str, said: str
) -> None:
    # Returns once no process has the pipe open any more.
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.stdout == said
