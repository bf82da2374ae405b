"""Duplicates and their root causes.

A duplicate is an execution of a message that began although the one before it had not failed: the
earlier one was still running, had succeeded, or no journal shows how it ended, because its worker
was killed or released the message while the task ran.

Only messages that were received more than once matter. They are few, and the others are kept out of
every shuffle. Each new execution is paired with the attempt that ran the task before it, both by
their `task-started`. A receive that is in no journal is no execution: whether a task ran in it is
not known. SQS's receive count orders them, so wrong clocks do not matter. An interrupted execution
(its worker died, or released the message while it ran) has no end in the journal, so the overlap of
its pair is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import WORKER_DIED
from celery_sqs_heartbeat.pipeline.schema import DUPLICATES, PARTITION
from celery_sqs_heartbeat.pipeline.spark import day_of, frame_of, having, shape
from celery_sqs_heartbeat.pipeline.tables.attempts import DELETE_REFUSED, ENDED_RELEASES
from celery_sqs_heartbeat.pipeline.tables.events import data_end
from celery_sqs_heartbeat.pipeline.tables.evidence import TOLERANCE_US, with_evidence

_OF_FIRST = (
    "wid", "rc", "dlv", "received", "started", "finished", "ended", "ended_as", "cause", "vt",
    "last_event",
)  # fmt: skip
#: Columns of the pair, and of the second execution.
_OF_PAIR = (
    "queue", "msg", "task", "task_id", "wid", "rc", "started", "finished", "ended_as",
    "first", "next_received", "overlap_us", "both_succeeded", PARTITION,
)  # fmt: skip


class Cause(NamedTuple):
    """A root cause of duplicates: what happened, and what to do about it."""

    meaning: str
    advice: str


#: All causes by name, the most frequent in practice first. `docs/pipeline.md` has their signs.
CAUSES: Mapping[str, Cause] = {
    "keeper-starved": Cause(
        "the thread that extends leases was delayed until a lease expired",
        "give the worker more CPU, find out what kills the keeper's process, or raise the "
        "threshold",
    ),
    "sqs-slow": Cause(
        "SQS answered an extension too late",
        "raise the visibility timeout; check the network between the worker and SQS",
    ),
    "sqs-errors": Cause(
        "SQS answered extensions with errors: throttled (429, 503), failed or HTTP 500",
        "raise the visibility timeout to longer than such an outage; if SQS throttles, ask "
        "AWS for a higher quota or make fewer calls",
    ),
    "not-permitted": Cause(
        "SQS refused extensions: the worker may not extend the queue's messages, or may "
        "not see the queue",
        "grant sqs:ChangeMessageVisibility to the worker: `celery -A proj sqs-heartbeat "
        "iam` prints the policy, and `celery -A proj sqs-heartbeat doctor` checks it",
    ),
    "network": Cause(
        "SQS did not answer extensions: no answer came, or a gateway's 502 or 504",
        "check the network, proxies and VPC endpoints; raise the visibility timeout to "
        "longer than such an outage",
    ),
    "died-after-success": Cause(
        "the worker died between the end of the task and the confirmed delete",
        "find out what killed the worker; give it longer to stop; make the task idempotent",
    ),
    "delete-refused": Cause(
        "the task succeeded, and SQS refused to delete its message",
        "grant sqs:DeleteMessage; on a FIFO queue, an expired lease can't delete",
    ),
    "died-while-running": Cause(
        "the worker died while the task ran",
        "look for an out-of-memory kill, a deployment or a lost host; make the task "
        "idempotent, or let it continue where it stopped",
    ),
    "capped": Cause(
        "the task took longer than a lease may last",
        "raise max_lease (SQS allows at most 12 hours), or split the task",
    ),
    "released-while-running": Cause(
        "the worker released the message while its task ran, as in a cold shutdown",
        "give workers longer to stop, or make the task idempotent",
    ),
    "opted-out": Cause(
        "the task has sqs_heartbeat=False, so its lease is not extended, and it took "
        "longer than the visibility timeout",
        "remove sqs_heartbeat=False from the task, or give it a queue with a visibility "
        "timeout longer than the task",
    ),
    "lines-lost": Cause(
        "the lines of its worker that would show the cause are lost: those of a killed "
        "keeper's last second, or of a damaged segment",
        "find out what killed the keeper or damaged the journal; the report's last section "
        "lists what could not be read",
    ),
    "second-delivery": Cause(
        "SQS delivered the message twice on its own, or another client made it visible",
        "nothing: standard queues deliver at least once; make the task idempotent, or use a "
        "FIFO queue",
    ),
    "unknown": Cause(
        "the journals do not show why",
        "check lost lines and missing journals in the report's last section",
    ),
}

#: What the rules need to know of a pair, besides its evidence.
_FACTS = {
    "has_finished": "first.finished IS NOT NULL",
    "has_no_end": "first.ended_as = 'abandoned'",
    # A worker that wrote lines after that was not dead.
    "is_gone": "first.ended_as = 'abandoned' "
    f"AND coalesce(first_last_seen < next_received + {TOLERANCE_US}, true)",
    "ended_before": "first.ended IS NOT NULL AND first.ended_as IN ('deleted', 'released', "
    f"'lapsed') AND first.ended < next_received + {TOLERANCE_US}",
    "is_lost": "lost_until > first.last_event",
    # Of failed calls, the last counts.
    "failed_at": "greatest(error_at, unanswered_at, 0)",
    "refused": "coalesce(refused, 0)",
}
_LOST = """struct('lines-lost',
    format_string('lines of its worker %s are missing from that time', first.wid))"""


def _ago(time: str) -> str:
    """Return the seconds from a time until the next receive, in SQL."""
    return f"(next_received - {time}) / 1000000"


def _calls(number: str) -> str:
    """Return a number of calls in words, in SQL."""
    return f"format_string('%d %s', {number}, CASE WHEN {number} = 1 THEN 'call' ELSE 'calls' END)"


#: The rules: an ordered choice of a cause with its evidence. A rule checks the attempt that had the
#: message first, up to the message's next receive. Its lease is certain until `sure_until`: one
#: visibility timeout after the last extension that SQS confirmed before the lease expired. The
#: first rule that applies decides.
_VERDICT = f"""CASE
WHEN first.cause = '{WORKER_DIED}' AND ended_before THEN struct('died-while-running',
    format_string('worker %s died, and its keeper released the message %.1f s before the next '
        || 'receive', first.wid, {_ago("first.ended")}))
WHEN was_released AND ended_before THEN struct('released-while-running',
    format_string('released (%s) while its task ran', first.cause))
WHEN first.cause = '{DELETE_REFUSED}' AND ended_before THEN struct('delete-refused',
    format_string('SQS refused its delete %.1f s before the next receive', {_ago("first.ended")}))
WHEN is_lost AND (is_early OR (has_no_end AND has_finished)) THEN {_LOST}
WHEN is_early THEN struct('second-delivery',
    format_string('received again %.1f s before the lease could end', -({_ago("sure_until")})))
WHEN is_gone AND has_finished THEN struct('died-after-success',
    format_string('its task had ended, its delete was not confirmed, then its worker %s was '
        || 'silent; received again %.1f s after that', first.wid, {_ago("first.last_event")}))
-- The last extension may report at once that it is the last.
WHEN capped_at >= coalesce(good_at, 0) THEN struct('capped',
    format_string('not extended any more from %.1f s before the next receive', {_ago("capped_at")}))
WHEN late_us IS NOT NULL THEN struct('keeper-starved',
    format_string('the keeper was delayed by %.1f s', late_us / 1000000))
WHEN greatest(refused_at, denied_at) > failed_at THEN struct('not-permitted',
    format_string('SQS refused %s to extend it: not permitted%s', {_calls("refused")},
        CASE WHEN denied_at IS NULL THEN '' ELSE
            format_string('; it refused them for the whole queue from %.1f s before the next '
                || 'receive', {_ago("denied_at")}) END))
WHEN unanswered_at > coalesce(error_at, 0) THEN struct('network',
    format_string('SQS did not answer %s since the last extension', {_calls("unanswered")}))
WHEN error_at IS NOT NULL THEN struct('sqs-errors',
    format_string('SQS answered %s with errors since the last extension, %d of them throttled',
        {_calls("errors")}, throttled))
WHEN slow_us IS NOT NULL THEN struct('sqs-slow',
    format_string('a call took %.1f s', slow_us / 1000000))
WHEN is_lost AND has_no_end THEN {_LOST}
WHEN is_gone THEN struct('died-while-running',
    format_string('its worker %s was silent from %.1f s before the next receive on',
        first.wid, {_ago("first.last_event")}))
WHEN extended_late_us > 0 THEN struct('keeper-starved',
    format_string('extended %.1f s too late, although calls were fast', extended_late_us / 1000000))
WHEN is_opted_out AND good_at IS NULL AND coalesce(tries, 0) = 0 THEN struct('opted-out',
    format_string('its task has sqs_heartbeat=False: its timeout of %d s ended, and was not '
        || 'extended', first.vt))
WHEN lost_until IS NOT NULL THEN {_LOST}
ELSE struct('unknown', 'nothing in the journals shows why') END"""


def duplicates_of(
    attempts: DataFrame, events: DataFrame, workers: DataFrame, rejects: DataFrame
) -> DataFrame:
    """Return the pairs with their causes.

    Args:
        rejects: Rejects of the segments that the events are from.
    """
    again = having(attempts, "msg", attempts.where(F.col("rc") > 1))
    # Read several times below. They are few.
    pairs = _pairs(_in_order(again), workers).persist()
    if pairs.isEmpty():
        return frame_of(pairs.sparkSession, [], DUPLICATES.ddl)
    is_early = (
        f"next_received < sure_until - {TOLERANCE_US} "
        "AND NOT (ended_before AND first.ended_as != 'deleted')"
    )
    judged = (
        with_evidence(pairs, events, workers, rejects)
        .withColumns({name: F.expr(fact) for name, fact in _FACTS.items()})
        .withColumns({"is_early": F.expr(is_early), "was_released": _was_released()})
        # In two columns each condition would exist twice, and the plan would be larger.
        .withColumn("judged", F.expr(_VERDICT))
    )
    columns = {"cause": F.col("judged.col1"), "evidence": F.col("judged.col2")}
    for name in ("wid", "rc", "started", "finished", "ended_as"):
        columns |= {f"first_{name}": F.col(f"first.{name}"), f"second_{name}": F.col(name)}
    return shape(judged.withColumns(columns), DUPLICATES)


def _in_order(attempts: DataFrame) -> DataFrame:
    """Add the receive after each attempt, and the attempt that ran the task before it."""
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    before = receives.rowsBetween(Window.unboundedPreceding, -1)
    one_execution = Window.partitionBy("queue", "msg", "wid", "started")
    finished = F.when(F.col("started").isNotNull(), F.max("finished").over(one_execution))
    with_next = attempts.withColumn("finished", F.coalesce(finished, F.col("finished"))).withColumn(
        "next_received", F.lead("received").over(receives)
    )
    ran = F.when(F.col("started").isNotNull(), F.struct(*_OF_FIRST, "next_received"))
    return with_next.withColumn("first", F.last(ran, ignorenulls=True).over(before))


def _pairs(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the new executions that are part of a duplicate, with the earlier attempt."""
    is_new = F.col("started").isNotNull() & (
        F.coalesce(F.col("received_as") == "new", F.lit(True))
        | (F.col("started") >= F.col("received"))
    )
    overlap = F.least(_end("first."), _end("")) - F.greatest("first.started", "started")
    is_cut_off = _was_released() | (
        (F.col("first.ended_as") == "abandoned") & F.col("first.finished").isNull()
    )
    has_succeeded = _succeeded("first.") & ~is_cut_off
    candidates = attempts.where(is_new & F.col("first").isNotNull())
    return (
        candidates.crossJoin(F.broadcast(data_end(workers)))
        .withColumn("overlap_us", F.when(~is_cut_off, F.greatest(overlap, F.lit(0))))
        .withColumn("both_succeeded", has_succeeded & _succeeded(""))
        .where(is_cut_off | (F.col("overlap_us") > 0) | has_succeeded)
        .withColumn("next_received", F.col("first.next_received"))
        .withColumn(PARTITION, day_of(F.col("started")))
        .select(*_OF_PAIR)
    )


def _was_released() -> Column:
    """Return whether the first attempt was released although its task had started."""
    return (
        F.col("first.started").isNotNull()
        & F.col("first.ended_as").isin("released", "lapsed")
        & ~F.coalesce(F.col("first.cause").isin(*ENDED_RELEASES), F.lit(False))
    )


def _end(prefix: str) -> Column:
    """Return when an execution ended; for an interrupted one, its last event."""
    is_over = F.col(f"{prefix}ended_as") == "abandoned"
    last = F.when(is_over, F.col(f"{prefix}last_event")).otherwise(F.col("data_end"))
    return F.coalesce(F.col(f"{prefix}finished"), last)


def _succeeded(prefix: str) -> Column:
    cause = F.col(f"{prefix}cause")
    is_back = F.coalesce(cause != DELETE_REFUSED, F.lit(False)) & F.col(f"{prefix}ended_as").isin(
        "released", "lapsed"
    )
    return F.col(f"{prefix}finished").isNotNull() & ~is_back
