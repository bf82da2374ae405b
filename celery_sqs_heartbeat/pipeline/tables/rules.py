"""An ordered table of rules, of which the first that holds decides."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

_SECOND = 1_000_000
#: What clocks and the way of an answer leave open, in microseconds.
TOLERANCE_US = _SECOND


@dataclass(frozen=True, slots=True)
class Rule:
    """A cause holds where its condition does, and none before it."""

    cause: str
    condition: Column
    evidence: Column


def first_that_holds(ordered: tuple[Rule, ...]) -> Column:
    """Return `cause` and `evidence` of the first rule that holds, as one struct.

    As two columns each condition would be there twice, and the plan be as much larger.
    """
    *others, last = ordered
    chosen = _verdict(last)
    for rule in reversed(others):
        chosen = F.when(rule.condition, _verdict(rule)).otherwise(chosen)
    return chosen


def _verdict(rule: Rule) -> Column:
    # Of all rules it is a text for certain: Sail chooses between structs of one type alone.
    evidence = F.coalesce(rule.evidence, F.lit(""))
    return F.struct(F.lit(rule.cause).alias("cause"), evidence.alias("evidence"))


def text(template: str, *values: Column) -> Column:
    """Return a text with values in it."""
    return F.format_string(template, *values)


def seconds(span: Column) -> Column:
    """Return a span of microseconds in seconds."""
    return span / _SECOND


def counted(count: Column, noun: str) -> Column:
    """Return how many of something there are."""
    return text("%d %s", count, F.when(count == 1, noun).otherwise(f"{noun}s"))
