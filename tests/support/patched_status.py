"""`python -m tests.support.patched_status gevent FILE`: a status page while nothing yields.

Prints the server's port, then lets no greenlet run until the file exists. Prints "ended" once
the server and the keeper have ended.
"""

from __future__ import annotations

import sys
import warnings

if __name__ == "__main__":
    # First of all, as Celery does it.
    warnings.simplefilter("ignore")
    if sys.argv[1] == "gevent":
        from gevent.monkey import patch_all as patch
    else:
        from eventlet import monkey_patch as patch
    patch()

import os
from pathlib import Path

from celery_sqs_heartbeat import LeaseTerms
from celery_sqs_heartbeat.common import native
from tests.support.observed import observed

#: Due for extension a tenth of a second after each extension.
EAGER = LeaseTerms(visibility_timeout=30, threshold=29.9)


def main(stop: Path) -> None:
    with observed() as scene:
        scene.receive("a", terms=EAGER)
        print(scene.server.port, flush=True)  # noqa: T201
        while not stop.exists():
            pass
    print("ended", flush=True)  # noqa: T201


if __name__ == "__main__":
    assert native.is_green()
    main(Path(sys.argv[2]))
    os._exit(0)
