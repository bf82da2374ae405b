"""Private names of Celery's worker, its pools, and the libraries that the pools use."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

_FLUSH = "none: when a connection is lost, Celery drops its jobs without calling any hook"
_RUN = "none: a request can't keep a pool from running its task, and gets no errors from around it"

PRIVATE: tuple[Need, ...] = (
    *internals(
        "celery.worker.worker:WorkController",
        (
            "wait_for_soft_shutdown",
            "replaced, to release waiting messages first",
            "none: Celery sends the signal `worker_shutting_down` only after the wait",
            "",
        ),
        (
            "stop",
            "replaced, to run messages on their last receive first",
            "none: Celery stops its steps, and the pool with them, without calling any hook before",
            "in_sighandler=",
        ),
        (
            "terminate",
            "replaced, to end the heartbeat after a cold shutdown",
            "none: Celery sends the signal `worker_shutdown` only after a warm one",
            "in_sighandler=",
        ),
    ),
    *internals(
        "celery.app.task:Task",
        (
            "retry",
            "replaced, to release the message of a task that is retried in order",
            "none: Celery calls no hook before it sends the new message",
            "args, kwargs, exc, throw, eta, countdown, max_retries, option=",
        ),
    ),
    *internals(
        "celery.concurrency.base:BasePool",
        ("flush", "replaced, to keep the acks of running tasks through a reconnect", _FLUSH),
        ("on_apply", "replaced, to report to a task's request how the task ended", _RUN),
    ),
    *internals(
        "celery.concurrency.asynpool:AsynPool",
        ("flush", "drops jobs; we then restore those that run", _FLUSH, ""),
    ),
    *internals(
        "celery.concurrency.prefork:TaskPool",
        ("_pool", "the pool's processes, for their jobs", _FLUSH),
    ),
    *internals(
        "billiard.pool:Pool",
        ("_cache", "the jobs that the processes have", _FLUSH),
        (
            "_pool",
            "the processes, which the keeper watches",
            "the signal `worker_process_init`: it is sent in the child process, which would have "
            "to notify the main process",
        ),
    ),
    *internals(
        "billiard.pool:ApplyResult",
        (
            "_write_to",
            "which process a job is being written to",
            "none: `accepted` is true only after the process has read the job and confirmed it",
        ),
    ),
    *internals(
        "concurrent.futures.thread:ThreadPoolExecutor",
        (
            "_shutdown",
            "whether a threads pool was stopped",
            "none: `submit` then raises `RuntimeError`, but also when no thread can be started",
        ),
        (
            "_shutdown_lock",
            "replaced by a lock that a signal handler can acquire again",
            "none: an executor makes its own lock",
        ),
    ),
    *internals(
        "celery_batches:Batches",
        (
            "_tref",
            "reset, to have each consumer start the flush timer again",
            "none: the timer is started only once, and the attribute stays set after Celery has "
            "cleared the timer",
        ),
        only="tasks of celery-batches",
    ),
)
