"""Finds the times from which lines of a worker are missing, as far as the journals show them.

| sign | from | to |
|---|---|---|
| a gap in the worker's numbers | the line before it | the line after it |
| its first line is not number 1, and is not of the first day, or a segment can't be read | a day \
before | that line |
| no `worker-stopped`, and a segment of its last day can't be read | its last line | `SILENT_US` \
later |
| no `worker-stopped`, and it was killed | its last line | when a lease that it held expired |
| no line at all of a worker whose segment can't be read | the day's start | the day's end |

A killed worker loses the lines of its last second. It is considered dead if it was silent although
a lease that it held expired, or for `SILENT_US`. Workers are few, so their facts are collected, and
the holes are calculated from them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, Row

from celery_sqs_heartbeat.pipeline.tables.attempts import SILENT_US
from celery_sqs_heartbeat.pipeline.tables.lives import gaps_of, held_by, lives_of, unread_days
from celery_sqs_heartbeat.pipeline.tables.rules import TOLERANCE_US

_DAY_US = 86_400_000_000
_EPOCH = datetime.date(1970, 1, 1)


class Hole(NamedTuple):
    """A time from which lines of a worker are missing, in microseconds.

    Attributes:
        queues: The queues that it served; none if no journal shows one.
        is_killed: Whether it was killed then, and so lost its last lines.
    """

    wid: str
    queues: Sequence[str]
    since: int
    until: int
    is_killed: bool = False


def holes_of(
    attempts: DataFrame, events: DataFrame, workers: DataFrame, rejects: DataFrame
) -> list[Hole]:
    """Return the holes of all workers."""
    lives = {row["wid"]: row for row in lives_of(workers).collect() if row["last_seen"] is not None}
    unread = unread_days(rejects)
    suspects = [
        wid
        for wid, life in lives.items()
        if life["stopped"] is None or life["missing"] or life["first_seq"] > 1
    ]
    seen = [{name: lives[wid][name] for name in ("wid", "last_seen", "tasks")} for wid in suspects]
    queues, lease_ends = held_by(attempts, seen) if seen else ({}, {})
    begin = min((life["first_day"] for life in lives.values()), default=_EPOCH)
    end = max((life["last_seen"] for life in lives.values()), default=0)
    holes = list(_of_unheard(unread, lives.keys()))
    for wid in suspects:
        days, life = unread.get(wid, []), lives[wid]
        holes += _before(life, days, begin)
        holes += _after(life, days, lease_ends.get(wid), end)
    incomplete = [wid for wid in suspects if lives[wid]["missing"]]
    holes += [Hole(wid, [], since, until) for wid, since, until in gaps_of(events, incomplete)]
    return [hole._replace(queues=queues.get(hole.wid, [])) for hole in holes]


def _before(life: Row, unread: list[datetime.date], begin: datetime.date) -> Iterator[Hole]:
    if life["first_seq"] > 1 and (unread or life["first_day"] > begin):
        yield Hole(life["wid"], [], life["first_seen"] - _DAY_US, life["first_seen"])


def _after(
    life: Row, unread: list[datetime.date], lease_end: int | None, end: int
) -> Iterator[Hole]:
    if life["stopped"] is not None:
        return
    wid, last = life["wid"], life["last_seen"]
    if any(day >= life["last_day"] for day in unread):
        yield Hole(wid, [], last, last + SILENT_US)
        return
    until = last + SILENT_US if lease_end is None else lease_end
    if end > until + TOLERANCE_US:
        yield Hole(wid, [], last, until, is_killed=True)


def _of_unheard(unread: Mapping[str, list[datetime.date]], heard: Iterable[str]) -> Iterator[Hole]:
    """Yield the days of workers without a readable line."""
    for wid in unread.keys() - set(heard) - {""}:
        for day in unread[wid]:
            since = (day - _EPOCH).days * _DAY_US
            yield Hole(wid, [], since, since + _DAY_US)
