"""The audit accepts each cause, and refuses the same history without it: see `histories.txt`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.soak import table
from tests.soak.audit import Verdict, audit
from tests.soak.records import (
    CHANGE,
    DELETE,
    RECEIVE,
    SEND,
    Call,
    Entry,
    Harm,
    Note,
    Queue,
    Records,
    WorkerInfo,
)
from tests.soak.report import ALWAYS, describe, overused
from tests.soak.table import TABLE, Row

ROOT = Path(__file__).parents[2]
#: How long a call takes, and a queue hides a message, in seconds.
CALL, TIMEOUT = 0.01, 6
#: `[MESSAGE] WORKER VERB [TIME[-TIME]] [OPTION]...`, or `WORKER FIELD=VALUE`.
EVENT = re.compile(
    r"(?:(ahead|other) )?(\w+) ([\w.=-]+)(?: (-?[\d.]+)(?:-([\d.]+))?)?((?: [\w=.]+)*)"
)
CALLS = {"receives": RECEIVE, "extends": CHANGE, "releases": CHANGE, "deletes": DELETE}
RUNS = {"runs": "end", "fails": "fail", "rejects": "reject", "unsends": "unsent"}
NOTES = {"arrives": "arrive", "expires": "expire", "stops": "stop"}
#: Harm that has a name of its own here. A pause also stops the keeper, and a halt does not.
HARMS = {
    "halt": ["pause"],
    "pause": ["keeper-pause", "pause"],
    "hang": ["keeper-pause"],
    "young-pause": ["keeper-pause"],
}


class Story:
    """A history, as a line of `histories.txt` describes it."""

    def __init__(self, events: list[str]) -> None:
        about = dict(event.split("=") for event in events if "=" in event and " " not in event)
        self._group, self._task = about.get("group", ""), about.get("task", "work")
        self._queue = Queue(
            name="q.fifo" if self._group else "q",
            visibility_timeout=TIMEOUT,
            max_receive_count=int(about["most"]) if "most" in about else None,
        )
        self.records = Records(queues={self._queue.name: self._queue})
        self._received: Counter[str] = Counter()
        self._held: Counter[tuple[str, str]] = Counter()
        self._send("soak", "m", 0.0)
        for event in events:
            if match := EVENT.fullmatch(event):
                self._add(*match.groups())
            elif event in ("left", "dead"):
                getattr(self.records, event).add("m")
            else:
                assert "=" in event, event

    def verdict(self) -> Verdict:
        """Return the audit's verdict on the message."""
        (verdict,) = (each for each in audit(self.records) if each.message.message_id == "m")
        return verdict

    def _add(self, name: str, who: str, verb: str, time: str, end: str, more: str) -> None:
        options = dict(each.partition("=")[::2] for each in more.split())
        message_id, at, until = name or "m", float(time or 0), float(end or "inf")
        info = WorkerInfo(name=who, pool="prefork", began=-10.0)
        if who != "all":
            info = self.records.workers.setdefault(who, info)
        if message_id not in self._received:
            self._send("soak", message_id, 0.0)
        field, _, value = verb.partition("=")
        if value:
            setattr(info, field, type(getattr(info, field))(value))
        elif verb in CALLS:
            self._call(who, verb, message_id, at, options)
        elif verb in RUNS or verb in NOTES:
            self._note(who, "start" if verb in RUNS else NOTES[verb], message_id, at, options)
            if until < math.inf:
                self._note(who, RUNS[verb], message_id, until, options)
        elif verb == "does":
            self._call(who, "receives", message_id, at, {})
            self._note(who, "start", message_id, at + 0.1, {})
            self._note(who, "end", message_id, at + 0.6, {})
            self._call(who, "deletes", message_id, at + 0.7, {})
        elif verb == "sends":
            self._send(who, "" if "fails" in options else "copy", at)
        elif verb == "unrepeated":
            self.records.unrepeated.add((who, "m"))
        else:
            for what in HARMS.get(verb, [verb]):
                harm = Harm(what=what, worker=who, at=at, until=until)
                harm.pid, harm.died = int(options.get("by", 1)), verb == "hang"
                harm.as_it_starts = verb == "young-pause"
                self.records.harms.append(harm)
            if verb == "break":
                self._note(who, "disconnect", "", at, {})
            if verb == "kill":
                info.ended = at

    def _send(self, worker: str, message_id: str, at: float) -> None:
        if message_id != "copy":
            self._received[message_id] = 0
        entry = Entry(
            message_id=message_id,
            headers={"id": "t", "task": f"proj.{self._task}"},
            group=self._group,
            sequence=1 if message_id == "ahead" else 2,
        )
        self._add_call(worker, SEND, at, entry, {} if message_id else {"fails": ""})

    def _call(
        self, worker: str, verb: str, message_id: str, at: float, options: dict[str, str]
    ) -> None:
        if verb == "receives":
            self._received[message_id] += 1
            count = int(options.get("count", self._received[message_id]))
            self._received[message_id] = self._held[worker, message_id] = count
        count = int(options.get("count", self._held[worker, message_id]))
        entry = Entry(
            message_id=message_id,
            handle=f"{message_id}{count}",
            count=count,
            timeout=int(options.get("for", 0 if verb in ("releases", "deletes") else TIMEOUT)),
            refused="refused" in options,
        )
        self._add_call(worker, CALLS[verb], at, entry, options)

    def _add_call(
        self, worker: str, operation: str, at: float, entry: Entry, options: dict[str, str]
    ) -> None:
        entry.done = not {"fails", "refused"} & {*options}
        entry.told = entry.done and "lost" not in options
        faults = [each for each in ("reset", "slow") if each in options]
        done = float(options.get("done", at + CALL))
        call = Call(
            worker=worker,
            operation=operation,
            queue=self._queue.name,
            started=at,
            ended=float(options.get("answered", done)),
            fault=faults[0] if faults else "" if entry.told or entry.refused else "500",
            entries=[entry],
        )
        if entry.done:
            call.forwarded, call.done = at, done
        self.records.calls.append(call)

    def _note(
        self, worker: str, what: str, message_id: str, at: float, options: dict[str, str]
    ) -> None:
        count = int(options.get("count", self._held[worker, message_id] or 1))
        pid = int(options.get("by", 1))
        note = Note(what=what, at=at, worker=worker, pid=pid, message_id=message_id, count=count)
        self.records.notes.append(note)


def _histories() -> Iterator[tuple[str, list[str], str]]:
    """Yield each history with its line, its events, and what the audit says of it."""
    named: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "histories.txt").read_text().splitlines():
        text, _, said = line.partition(" -> ")
        name, is_named, events = text.partition(" = ")
        parts = re.split(r" \+ |, ", events if is_named else text)
        told = [event for part in parts for event in named.get(part, [part])]
        if is_named:
            named[name] = told
        elif text and not text.startswith("#"):
            yield line, told, said


HISTORIES = [*_histories()]


@pytest.mark.parametrize(
    ("events", "said"), [pytest.param(told, said, id=line) for line, told, said in HISTORIES]
)
def test_a_history_is_judged_as_its_line_says(events: list[str], said: str) -> None:
    verdict = Story(events).verdict()
    what, _, expected = said.partition(":" if said[0] != "!" and ":" in said[:9] else " ")
    if what == "!":
        faults = expected.split("; ")
        assert len(verdict.faults) == len(faults)
        assert all(map(str.__contains__, verdict.faults, faults)), verdict.faults
        return
    told: Mapping[str, str] = {
        "account": verdict.account,
        "idle": "; ".join(verdict.unexecuted),
        "causes": "; ".join(verdict.causes),
    }
    assert verdict.faults == []
    assert told.get(what, "; ".join(verdict.redeliveries)) == (
        expected.strip() if what in told else said
    )


def test_each_cause_explains_a_history_and_has_a_source_that_exists() -> None:
    verdicts = [Story(told).verdict() for _, told, said in HISTORIES if said[0] != "!"]
    assert {row for verdict in verdicts for row in verdict.rows} == {*TABLE}
    assert len({row.name for row in TABLE}) == len(TABLE)
    for row in TABLE:
        path, _, place = row.where.partition("#")
        text = (ROOT / path).read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = [re.sub(r"[^\w\- ]", "", each).lower().replace(" ", "-") for each in headings]
        # A row of a table of scripts has a name, too.
        assert place in anchors or f"\n{place}:\n" in text, row.where


def test_a_cause_may_explain_its_share_and_no_more() -> None:
    message = Story([]).verdict().message

    def overuse(row: Row, used: int, extra: int) -> list[str]:
        verdict = Verdict(message=message, redeliveries=["why"] * extra, rows=[row] * used)
        return overused([verdict])

    for row in TABLE:
        most = round(row.share * 1_000)
        assert overuse(row, most, 1_000) == []
        (fault,) = overuse(row, most + 1, 1_000)
        assert f'"{row.name}" explains {most + 1} of 1000' in fault
    # In a small soak, one cause may explain everything.
    assert overuse(table.DELAYED, ALWAYS, ALWAYS) == []
    assert overuse(table.DELAYED, ALWAYS + 1, ALWAYS + 1) != []
    # Only what was requested or measured may explain most of a soak.
    most_used = [row for row in TABLE if row.share > 0.6]
    assert most_used == [table.RELEASED_BY_TASK, table.WAITED_IN_SHUTDOWN, table.STALLED]


def test_a_description_shows_the_whole_history_in_order() -> None:
    story = Story(["a receives 1", "b halt 4-5", "a extends 5 fails", "a runs 1.5-9", "b does 7.2"])
    lines = describe(story.verdict(), story.records).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines[2:12]] == [
        "soak  sends work to q",
        "a     receives it for 6 s, #1",
        "a     starts it, #1, in process 1",
        "b     ! pause 1 until +5.000",
        "a     hides for 6 s #1: not done [500]",
        "b     receives it for 6 s, #2",
        "b     starts it, #2, in process 1",
        "b     ends it, #2",
        "b     deletes #2: done",
        "a     ends it, #1",
    ]
