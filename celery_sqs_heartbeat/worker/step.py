"""What `install` adds to a Celery app: the flag, the step, and what its pool processes need.

The step starts a worker's heartbeat, if it can use the installed Celery and kombu.

If the main process is killed, its pool processes survive. Each would run its task to the end, and
nothing would take its ack. The keeper releases their messages only after they are gone. So they
exit at once, and the tasks can run again at once.

In all of them, a task may raise `ReleaseMessage`, which Celery logs as an error with a traceback,
as it does any `Reject`. If the worker has a lease on the message, it logs the delay of the release
(`transport`). In other processes and in other workers, one line says why the delay has no effect.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from typing import Any

from celery import Celery, bootsteps, current_task, signals
from celery.bin.base import CeleryOption

from celery_sqs_heartbeat.current.current_message import ReleaseMessage, current_message
from celery_sqs_heartbeat.current.sharing import VARIABLE, shared_table
from celery_sqs_heartbeat.errors import NoLease
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.worker import versions
from celery_sqs_heartbeat.worker.retrying import release_retries

logger = logging.getLogger(__name__)

#: A module constant, because Celery keeps options in a set by identity.
HEARTBEAT_SQS = CeleryOption(
    ["--heartbeat-sqs/--no-heartbeat-sqs"],
    default=None,
    help_group="Features",
    help="Keep SQS messages invisible while their tasks run, and release them "
    "when they fail. Unset, the setting sqs_heartbeat_enabled decides.",
)
_SQS = "kombu.transport.SQS"
#: Celery's logger that reports how tasks end.
_TRACE = "celery.app.trace"
#: linux/prctl.h
_PR_SET_PDEATHSIG = 1

#: The worker's main process, and whether its main thread forked this one. Both are None in a
#: spawned process, which has its own interpreter.
_worker: int | None = None
_is_forked_by_main: bool | None = None


def install(app: Celery) -> Celery:
    """Add the option --heartbeat-sqs to `app`'s worker, and return the app.

    Call it where the app is made, because Celery reads the command line before Django is ready.
    Calling it twice is harmless. Without the flag or the setting `sqs_heartbeat_enabled`, it
    changes nothing, in a worker or in any other process.
    """
    app.user_options["worker"].add(HEARTBEAT_SQS)
    app.steps["worker"].add(SqsHeartbeatStep)
    prepare_pool_processes()
    return app


class SqsHeartbeatStep(bootsteps.StartStopStep):
    """Starts the heartbeat before the consumer connects.

    It comes after the pool, so no thread runs yet when the first children fork. It does not end
    the keeper in `stop`. In a warm shutdown, Celery calls `stop` while tasks still run, with no
    time limit, and their messages must stay leased.

    Modules that use Celery and kombu closely are imported only after their versions are checked.
    If one of them imports another name that is missing, the worker does not start either.
    """

    label = "SqsHeartbeat"
    conditional = True
    requires = {"celery.worker.components:Pool"}  # noqa: RUF012

    def __init__(self, parent: Any, heartbeat_sqs: bool | None = None, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        log_releases()
        try:
            self.enabled = _is_wanted(parent.app, heartbeat_sqs)
            if self.enabled:
                from celery_sqs_heartbeat.worker.heartbeat import WorkerHeartbeat

                note_worker()
                self._heartbeat = WorkerHeartbeat(parent)
        except ImportError as error:
            raise versions.WorkerVersionsError(
                [str(error)], versions.installed(), versions.TESTED
            ) from error

    def create(self, parent: Any) -> None:
        """Guard how the worker gives tasks to its pool, which exists by now."""
        self._heartbeat.create(parent)

    def start(self, parent: Any) -> None:
        """Connect the worker to its keeper, and have the keeper end with the worker."""
        self._heartbeat.start(parent)

    def close(self, parent: Any) -> None:
        """Release the messages of tasks that the pool has not started and will not run."""
        self._heartbeat.close(parent)

    def stop(self, parent: Any) -> None:
        """Do nothing, because tasks still run: see the class."""


def _is_wanted(app: Any, flag: bool | None) -> bool:
    if flag is None:
        flag = app.conf.get(PREFIX + "enabled")
    if not flag:
        return False
    transport = app.connection_for_read().transport
    # Compared by name: nothing of kombu is imported before its version is checked.
    if not any(each.__module__ == _SQS for each in type(transport).__mro__):
        logger.warning(
            "sqs-heartbeat: the broker is %s, not SQS: --heartbeat-sqs does nothing",
            transport.driver_type,
        )
        return False
    versions.require_versions()
    from celery_sqs_heartbeat.transport import Transport, register_transport

    register_transport()
    if not isinstance(app.connection_for_read().transport, Transport):
        logger.warning(
            "sqs-heartbeat: broker_transport is %r, not kombu's own SQS transport: "
            "--heartbeat-sqs does nothing",
            app.conf.broker_transport,
        )
        return False
    return True


def prepare_pool_processes() -> None:
    """Prepare every pool process that starts from now on."""
    signals.worker_process_init.connect(_prepare, dispatch_uid=__name__)


def _prepare(**_: Any) -> None:
    log_releases()
    # A spawned process knows its worker's heartbeat only from the environment. A solo pool sends
    # the signal, too, but in the main process.
    if VARIABLE in os.environ and os.getpid() != _worker:
        release_retries()
        end_with_parent()


def note_worker() -> None:
    """Note that this is a worker's main process: those that it forks know that."""
    global _worker
    if _worker is None:
        os.register_at_fork(before=_note_fork)
    _worker = os.getpid()


def _note_fork() -> None:
    global _is_forked_by_main
    _is_forked_by_main = threading.current_thread() is threading.main_thread()


def end_with_parent() -> None:
    """Have the system kill this process when its parent exits (Linux only).

    This does nothing if a thread other than the main one has forked the process, as in a pool
    without an event loop. The system would kill the process when that thread ends (prctl(2),
    PR_SET_PDEATHSIG). The keeper ends such processes.
    """
    if _is_forked_by_main is False or not sys.platform.startswith("linux"):
        return
    # `getppid()` may name another process by now: the worker may have died since it forked.
    parent = _worker or os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)


def log_releases() -> None:
    """Log a task that releases its message in one line, in this process and those it forks."""
    logger = logging.getLogger(_TRACE)
    if _without_traceback not in logger.filters:
        logger.addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Remove the traceback of a release from a record; return whether to log the record."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, ReleaseMessage):
        return True
    if (why := _why_without_effect()) is None:
        return False
    record.exc_info, record.exc_text = None, None
    record.msg = (
        "sqs-heartbeat: task %(name)s[%(id)s] raised ReleaseMessage, whose delay has no effect "
        f"here: {why.replace('%', '%%')}"
    )
    return True


def _why_without_effect() -> str | None:
    """Return why we do not release the message of the running task, or None if we do."""
    if current_task and current_task.request.is_eager:
        return "the task was called eagerly"
    try:
        current_message()
        shared_table()
    except NoLease as none:
        return str(none.args[0])
    return None
