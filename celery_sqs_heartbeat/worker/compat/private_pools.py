"""Private names of Celery's worker, its pools, and what those are made of."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

_FLUSH = "none: Celery drops the jobs of a lost connection itself, and asks no one"
_RUN = "none: a request can't keep a pool from running its task, nor hear of an error around it"

PRIVATE: tuple[Need, ...] = (
    *internals(
        "celery.worker.worker:WorkController",
        (
            "wait_for_soft_shutdown",
            "replaced, to release what waits before it",
            "none: the signal `worker_shutting_down` is sent when the wait is over",
            "",
        ),
    ),
    *internals(
        "celery.concurrency.base:BasePool",
        ("flush", "replaced, to keep running tasks' acks over a reconnect", _FLUSH),
        ("on_apply", "replaced, to have a task's request hear how it ended", _RUN),
    ),
    *internals(
        "celery.concurrency.asynpool:AsynPool",
        ("flush", "drops jobs, of which those that run are then brought back", _FLUSH, ""),
    ),
    *internals(
        "celery.concurrency.prefork:TaskPool",
        ("_pool", "the pool's processes, for their jobs", _FLUSH),
    ),
    *internals(
        "billiard.pool:Pool",
        ("_cache", "the jobs that processes have", _FLUSH),
        (
            "_pool",
            "the processes, which the keeper watches",
            "the signal `worker_process_init`, which is sent in the process itself: it would have "
            "to tell the main one",
        ),
    ),
    *internals(
        "billiard.pool:ApplyResult",
        (
            "_write_to",
            "which process a job is being written to",
            "none: `accepted` is true only once the process has read the job and said so",
        ),
    ),
    *internals(
        "concurrent.futures.thread:ThreadPoolExecutor",
        (
            "_shutdown",
            "whether a threads pool was stopped",
            "none: `submit` fails then, but by a `RuntimeError` as where no thread can be started",
        ),
        (
            "_shutdown_lock",
            "replaced by one that the handler of a signal can take again",
            "none: an executor makes its own lock",
        ),
    ),
    *internals(
        "celery_batches:Batches",
        (
            "_tref",
            "has each consumer time its flushes anew",
            "none: the timer is started once and stays when Celery has cleared it",
        ),
        only="tasks of celery-batches",
    ),
)
