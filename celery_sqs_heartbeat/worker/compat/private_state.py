"""Private names by which Celery and Python keep what belongs to a process or a thread."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

_GREEN = "gevent and eventlet"
_PAGE = "the status page"
_SOCKET = "none: gevent and eventlet replace `socket`, and the page must answer beside their tasks"

PRIVATE: tuple[Need, ...] = (
    *internals(
        "celery._state",
        (
            "_task_stack",
            "the task that `current_lease` is asked in",
            "none: `current_worker_task` does not see past a task that is called eagerly. Signals "
            "would come too late for a handler that was connected earlier, or a task that "
            "imports `current_lease` itself",
        ),
    ),
    *internals(
        "_thread:RLock",
        (
            "_is_owned",
            "whether a signal came within a change of the keeper's",
            "none: a signal may come between the lock and a note of its owner",
        ),
    ),
    *internals(
        "_queue",
        (
            "SimpleQueue",
            "gives jobs to threads of the system's",
            "none: gevent and eventlet replace the one of `queue`",
        ),
    ),
    *internals(
        "_socket",
        ("SHUT_RDWR", "ends connections of the page", _SOCKET),
        ("SHUT_WR", "ends connections of the page", _SOCKET),
        only=_PAGE,
    ),
    *internals(
        "_socket",
        (
            "socket",
            "the worker's end of the link to its keeper, and the connections of the page",
            "none: gevent and eventlet replace `socket`, and neither may switch to another task",
        ),
    ),
    *internals("_socket:socket", ("_accept", "takes connections", _SOCKET), only=_PAGE),
    *internals(
        "threading",
        (
            "_active_limbo_lock",
            "replaced, as eventlet's own breaks when threads meet at it",
            "none: a line of the log takes it, for a thread that is new to `threading`",
        ),
        only=_GREEN,
    ),
    *internals(
        "logging",
        (
            "_lock",
            "replaced, as eventlet's own breaks when threads meet at it",
            "none: `logging` takes it for every new logger and handler",
        ),
        only=_GREEN,
    ),
    *internals(
        "logging:Logger",
        (
            "callHandlers",
            "replaced, to have the tasks' thread write the lines of the keeper's",
            "none: handlers are the application's, and may be added at any time",
        ),
        only=_GREEN,
    ),
    *internals(
        "pyspark.errors.exceptions.captured:CapturedException",
        (
            "_origin",
            "finds the first cause of an error of Spark's",
            "none: its text has the causes only with a stack trace",
        ),
        only="the pipeline",
    ),
)
