"""Writes a fleet's journal and its true duplicates, and copies of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.journal.folder import Root, SegmentWriter, unpack
from celery_sqs_heartbeat.journal.reading import closed_segments
from fleet.recorder import fail
from fleet.truth import idle_of, pairs_of
from fleet.world import World

JOURNAL = "journal"
TRUTH = "truth.jsonl"
DEAD_LETTERS = "dead-letters.jsonl"
IDLE = "idle.json"
#: The fields of lines of the journal and of the truth that differ in each copy of the fleet.
_OWN = ("wid", "msg", "dlv", "task_id", "first_wid", "second_wid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The size of the fleet, and the true pairs of duplicates."""

    messages: int
    lines: int
    workers: int
    pairs: list[dict[str, Any]]


def make_fleet(out: Path, *, workers: int, hours: float, seed: int, copies: int = 1) -> Made:
    """Simulate a fleet, and write its journal and its true duplicates into a folder."""
    journal = out / JOURNAL
    journal.mkdir(parents=True, exist_ok=True)
    world = World(journal, workers=workers, hours=hours, seed=seed)
    world.run()
    pairs = pairs_of(world.histories.values(), world.clock())
    pairs += [_other(pair, number) for number in range(1, copies) for pair in pairs]
    lines = (json.dumps(pair) + "\n" for pair in pairs)
    (out / TRUTH).write_text("".join(lines), encoding="utf-8")
    dead = [{"msg": message_id} for message_id in world.dead_letters()]
    dead += [_other(row, number) for number in range(1, copies) for row in dead]
    (out / DEAD_LETTERS).write_text("".join(json.dumps(row) + "\n" for row in dead), "utf-8")
    (out / IDLE).write_text(json.dumps(idle_of(world.histories.values())), "utf-8")
    segments = closed_segments(journal)
    for number in range(1, copies):
        for segment in segments:
            _copy(segment, journal, number)
    return Made(
        messages=len(world.histories) * copies,
        lines=sum(recorder.lines for recorder in world.recorders) * copies,
        workers=len(world.recorders) * copies,
        pairs=pairs,
    )


def _copy(segment: Path, journal: Path, number: int) -> None:
    wid = _other_id(segment.parent.name.removeprefix("worker="), number)
    writer = SegmentWriter(Root(journal), wid, lambda: 0.0, fail)
    writer.write(_other_lines(segment, number))
    writer.close()


def _other_lines(segment: Path, number: int) -> Iterator[tuple[int, bytes]]:
    for line in unpack(segment.read_bytes()):
        fields = _other(json.loads(line), number)
        yield fields["ts"], json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _other(fields: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the same line in another copy of the fleet."""
    changed = {name: _other_id(fields[name], number) for name in _OWN if fields.get(name)}
    return {**fields, **changed}


def _other_id(old: str, number: int) -> str:
    """Return another id of the same length."""
    return old[:1] + hashlib.sha256(f"{number} {old}".encode()).hexdigest()[: len(old) - 1]
