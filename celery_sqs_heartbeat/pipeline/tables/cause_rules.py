"""The root causes of duplicates: an ordered choice between them, each with its evidence.

A rule checks the attempt that had the message first, up to the message's next receive. Its lease is
certain until `sure_until`: one visibility timeout after the last extension that SQS confirmed
before the lease expired. The first rule that applies decides.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.events import KEPT, WORKER_DIED

#: Uncertainty because of clocks and the time that an answer takes, in microseconds.
TOLERANCE_US = 1_000_000
#: A call that takes this part of the visibility timeout is slow. It is half of the default
#: threshold.
SLOW_PART = 1 / 6
#: The cause of a release although the task has succeeded.
DELETE_REFUSED = "delete refused"
#: Causes of releases after the end of a task. With any other cause, a started task still ran.
ENDED_RELEASES = ("failed", KEPT, "backoff policy", DELETE_REFUSED, "asked by task", "retried")

_SECOND = 1_000_000


def verdict() -> Column:
    """Return `cause` and `evidence` of the first rule that applies, as one struct.

    In two columns each condition would exist twice, and the plan would be larger.
    """
    again, sure = F.col("next_received"), F.col("sure_until")
    wid, ended_as = F.col("first.wid"), F.col("first.ended_as")
    has_finished = F.col("first.finished").isNotNull()
    has_no_end = ended_as == "abandoned"
    # A worker that wrote lines after that was not dead.
    is_gone = has_no_end & F.coalesce(F.col("first_last_seen") < again + TOLERANCE_US, F.lit(True))
    had_ended = F.col("first.ended").isNotNull() & ended_as.isin("deleted", "released", "lapsed")
    ended_before = had_ended & (F.col("first.ended") < again + TOLERANCE_US)
    early = (again < sure - TOLERANCE_US) & ~(ended_before & (ended_as != "deleted"))
    is_lost = F.col("lost_until") > F.col("first.last_event")
    lost = _because("lines-lost", "lines of its worker %s are missing from that time", wid)
    # Of failed calls, the last counts.
    failed_at = F.greatest("error_at", "unanswered_at", F.lit(0))
    refused = F.coalesce("refused", F.lit(0))
    denied = F.format_string(
        "; it refused them for the whole queue from %.1f s before the next receive",
        _before_next("denied_at"),
    )
    is_untried = F.col("good_at").isNull() & (F.coalesce("tries", F.lit(0)) == 0)
    return (
        F.when(
            _has_cause(WORKER_DIED) & ended_before,
            _because(
                "died-while-running",
                "worker %s died, and its keeper released the message %.1f s before the next "
                "receive",
                wid,
                _before_next("first.ended"),
            ),
        )
        .when(
            was_released_while_running("first") & ended_before,
            _because(
                "released-while-running", "released (%s) while its task ran", F.col("first.cause")
            ),
        )
        .when(
            _has_cause(DELETE_REFUSED) & ended_before,
            _because(
                "delete-refused",
                "SQS refused its delete %.1f s before the next receive",
                _before_next("first.ended"),
            ),
        )
        .when(is_lost & (early | (has_no_end & has_finished)), lost)
        .when(
            early,
            _because(
                "second-delivery",
                "received again %.1f s before the lease could end",
                (sure - again) / _SECOND,
            ),
        )
        .when(
            is_gone & has_finished,
            _because(
                "died-after-success",
                "its task had ended, its delete was not confirmed, then its worker %s was silent; "
                "received again %.1f s after that",
                wid,
                _before_next("first.last_event"),
            ),
        )
        .when(
            # The last extension may report at once that it is the last.
            F.col("capped_at") >= F.coalesce("good_at", F.lit(0)),
            _because(
                "capped",
                "not extended any more from %.1f s before the next receive",
                _before_next("capped_at"),
            ),
        )
        .when(
            F.col("late_us").isNotNull(),
            _because(
                "keeper-starved", "the keeper was delayed by %.1f s", F.col("late_us") / _SECOND
            ),
        )
        .when(
            F.greatest("refused_at", "denied_at") > failed_at,
            _because(
                "not-permitted",
                "SQS refused %s to extend it: not permitted%s",
                _calls(refused),
                F.when(F.col("denied_at").isNotNull(), denied).otherwise(""),
            ),
        )
        .when(
            F.col("unanswered_at") > F.coalesce("error_at", F.lit(0)),
            _because(
                "network",
                "SQS did not answer %s since the last extension",
                _calls(F.col("unanswered")),
            ),
        )
        .when(
            F.col("error_at").isNotNull(),
            _because(
                "sqs-errors",
                "SQS answered %s with errors since the last extension, %d of them throttled",
                _calls(F.col("errors")),
                F.col("throttled"),
            ),
        )
        .when(
            F.col("slow_us").isNotNull(),
            _because("sqs-slow", "a call took %.1f s", F.col("slow_us") / _SECOND),
        )
        .when(is_lost & has_no_end, lost)
        .when(
            is_gone,
            _because(
                "died-while-running",
                "its worker %s was silent from %.1f s before the next receive on",
                wid,
                _before_next("first.last_event"),
            ),
        )
        .when(
            F.col("extended_late_us") > 0,
            _because(
                "keeper-starved",
                "extended %.1f s too late, although calls were fast",
                F.col("extended_late_us") / _SECOND,
            ),
        )
        .when(
            F.col("is_opted_out") & is_untried,
            _because(
                "opted-out",
                "its task has sqs_heartbeat=False: its timeout of %d s ended, and was not extended",
                F.col("first.vt"),
            ),
        )
        .when(F.col("lost_until").isNotNull(), lost)
        .otherwise(_because("unknown", "nothing in the journals shows why"))
    )


def was_released_while_running(attempt: str) -> Column:
    """Return whether an attempt was released although its task had started."""
    return (
        F.col(f"{attempt}.started").isNotNull()
        & F.col(f"{attempt}.ended_as").isin("released", "lapsed")
        & ~F.coalesce(F.col(f"{attempt}.cause").isin(*ENDED_RELEASES), F.lit(False))
    )


def _because(cause: str, template: str, *values: Column) -> Column:
    evidence = F.format_string(template, *values)
    return F.struct(F.lit(cause).alias("cause"), evidence.alias("evidence"))


def _has_cause(cause: str) -> Column:
    return F.coalesce(F.col("first.cause") == cause, F.lit(False))


def _before_next(time: str) -> Column:
    """Return the seconds from a time until the next receive."""
    return (F.col("next_received") - F.col(time)) / _SECOND


def _calls(number: Column) -> Column:
    """Return a number of calls in words."""
    return F.format_string("%d %s", number, F.when(number == 1, "call").otherwise("calls"))
