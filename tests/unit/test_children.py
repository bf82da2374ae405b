"""A pool process ends with the worker that forked it, even if the worker dies very early."""

from __future__ import annotations

import subprocess
import sys

import pytest

from celery_sqs_heartbeat.current.sharing import VARIABLE
from tests.support.workers import ROOT

#: Forks, and dies before the child calls `end_with_parent`.
ORPHAN = """
import os, time
from celery_sqs_heartbeat.worker.children import end_with_parent
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
from celery_sqs_heartbeat.worker.children import end_with_parent
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    end_with_parent()
    print("it lives", flush=True)
"""

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can do it")


@linux
@pytest.mark.parametrize(("script", "said"), [(ORPHAN, ""), (CHILD, "it lives\n")])
def test_a_process_whose_worker_died_before_it_was_ready_ends(
    script: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "a table")
    # Returns once no process has the pipe open any more.
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.stdout == said
