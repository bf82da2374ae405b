"""An ordered table of rules. The first rule that applies decides."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

_SECOND = 1_000_000
#: Uncertainty because of clocks and the time that an answer takes, in microseconds.
TOLERANCE_US = _SECOND


@dataclass(frozen=True, slots=True)
class Rule:
    """A cause applies if its condition does, and none before it."""

    cause: str
    condition: Column
    evidence: Column


def first_that_holds(ordered: tuple[Rule, ...]) -> Column:
    """Return `cause` and `evidence` of the first rule that applies, as one struct.

    In two columns each condition would exist twice, and the plan would be larger. The last rule
    must always apply. Sail plans one choice between all rules in milliseconds, and takes seconds if
    each choice is in the other branch of the one before.
    """
    first, *others = ordered
    chosen = F.when(first.condition, _verdict(first))
    for rule in others:
        chosen = chosen.when(rule.condition, _verdict(rule))
    return chosen


def _verdict(rule: Rule) -> Column:
    # It must be a text in all rules: Sail chooses only between structs of the same type.
    evidence = F.coalesce(rule.evidence, F.lit(""))
    return F.struct(F.lit(rule.cause).alias("cause"), evidence.alias("evidence"))


def text(template: str, *values: Column) -> Column:
    """Return a text with values in it."""
    return F.format_string(template, *values)


def seconds(span: Column) -> Column:
    """Return microseconds in seconds."""
    return span / _SECOND


def counted(count: Column, noun: str) -> Column:
    """Return a number with its noun."""
    return text("%d %s", count, F.when(count == 1, noun).otherwise(f"{noun}s"))
