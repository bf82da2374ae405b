"""Private names by which Celery and Python keep what belongs to a process or a thread."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

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
            "whether a signal came within a change of what the worker holds",
            "none: a signal may come between the lock and a note of its owner",
        ),
    ),
    *internals(
        "_socket",
        (
            "socket",
            "writes to the keeper's process without waiting",
            "none: gevent and eventlet replace the one of `socket`, and no greenlet may switch "
            "while what a worker holds is changed",
        ),
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
