"""Private names that hold the state of a process or a thread, and one of PySpark's."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

PRIVATE: tuple[Need, ...] = (
    *internals(
        "celery._state",
        (
            "_task_stack",
            "the task that reads `current_lease`",
            "none: `current_worker_task` returns a task that is called eagerly, not the one around "
            "it. Signals would be too late for a handler that was connected earlier, and for a "
            "task that imports `current_lease` itself",
        ),
    ),
    *internals(
        "_thread:RLock",
        (
            "_is_owned",
            "whether a signal interrupted a change of the held messages",
            "none: a signal may arrive after the lock is acquired and before we could record its "
            "owner",
        ),
    ),
    *internals(
        "_socket",
        (
            "socket",
            "writes to the keeper's process without waiting",
            "none: gevent and eventlet replace `socket.socket`, and greenlets must not switch "
            "while the held messages change",
        ),
    ),
    *internals(
        "pyspark.errors.exceptions.captured:CapturedException",
        (
            "_origin",
            "finds the first cause of a Spark error",
            "none: the error's text has the causes only with a stack trace",
        ),
        only="the pipeline",
    ),
)
