"""A lease book, and scripts of what happens to it: one row of a table each.

A script is a row of steps, divided by ";". A step may begin with its time, in seconds since the
start, or since the step before it (`+0.05`). Names of messages are their receipt handles, too, and
`m1..m3` are three of them. What a step returns is checked: `done x -> unknown`.

- `receive a handle=h2 count=2 hidden=20 poll=5 timeout=30 ... -> redelivered`: a receive that was
  sent `poll` seconds ago, and began with a visibility timeout of `hidden` seconds.
- `done a`, `drop a CAUSE`, `start a`, `release a DELAY CAUSE`: what its owner says.
- `calls extend a=30 b=30 | delete c`: the calls to make now, each with its entries. `then ...`
  waits until they are due. `sizes 10 2` only counts their entries.
- `answer done lost`, `answer 2 done`: answers the first call that is open, or the second. `confirm`
  confirms all. `give-up 1 unsent` gives up as many calls.
- `run 60 extend=done delete=denied`: makes the calls of so much time, and answers them at once.
- `a goal=hold expires_at=50`, `a gone`, `waits a=yes`, `left 1`, `ending 1`, `due 20`,
  `expiry 30`: what holds now. `due` is the next call, `expiry` what is due without one.
- `events lease-lost`: all events since the last such step, except receives and starts.
  `told lease-lost a cause=failed` checks the last of a kind, `count lease-lost 1` counts all.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import Call, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive
from tests.unit.scripts import names_of, pairs, text_of, value_of

QUEUE = "https://sqs/1/q"
START = 1000.0
#: A visibility timeout of 30 s, which is extended after 20.
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
_TERMS = {field.name for field in fields(LeaseTerms)}
_SHORT = {"timeout": "visibility_timeout", "handle": "receipt_handle", "count": "receive_count"}
_TIMES = {"expires_at", "extend_at", "hidden_until", "received_at"}
_SILENT = {EventKind.MESSAGE_RECEIVED, EventKind.TASK_STARTED}


class Book:
    """A book on a clock that scripts move."""

    def __init__(self) -> None:
        self.book = LeaseBook(jitter=lambda: 1.0)
        self.now = START
        self.open: list[Call] = []
        self.events: list[Event] = []
        self._seen = 0

    def play(self, script: str) -> Book:
        for step in script.split(";"):
            try:
                self._do(step)
            except Exception as error:
                error.args = (f"{step.strip()!r} of {script!r}: {error}",)
                raise
            self.events += self.book.take_events()
        return self

    def plan(self) -> list[Call]:
        calls = self.book.plan(self.now, 16)
        self.open += calls
        return calls

    def answer(self, call: Call, *outcomes: str) -> None:
        """Answer a call. A single outcome applies to all entries."""
        self.open.remove(call)
        given = [Outcome(each) for each in outcomes] * (len(call.entries) // len(outcomes))
        self.book.apply_results(call, given, self.now)

    def lease(self, handle: str) -> Lease:
        lease = self.book.get(handle)
        assert lease is not None, handle
        return lease

    def due(self, room: int = 16) -> float:
        return self.book.agenda.next_due(self.now, room) - START

    def _do(self, step: str) -> None:
        words, _, result = (part.strip() for part in step.partition("->"))
        given = words.split()
        if moved := re.fullmatch(r"(\+?)([\d.]+)", given[0]):
            self.now = (self.now if moved[1] else START) + float(moved[2])
            del given[0]
        verb, *rest = given
        match verb, rest:
            case "receive", [names, *options]:
                for name in names_of(names):
                    self._receive(name, pairs(options), result or "new")
            case (("done" | "drop" | "start" | "release"), [names, *more]):
                for name in names_of(names):
                    assert self._say(verb, name, *more) is (result != "unknown")
            case (("calls" | "then"), _):
                self.now = START + self.due() if verb == "then" else self.now
                made = [_summary(call) for call in self.plan()]
                assert made == [_summary_of(each) for each in _split(rest)], made
            case "sizes", _:
                assert [len(call.entries) for call in self.plan()] == [*map(int, rest)]
            case "answer", [first, *outcomes] if first.isdigit():
                self.answer(self.open[int(first) - 1], *outcomes)
            case "answer", _:
                self.answer(self.open[0], *rest)
            case "confirm", _:
                for call in tuple(self.open):
                    self.answer(call, "done")
            case "give-up", [count, *unsent]:
                assert len(self.book.give_up(self.now, lambda call: not unsent)) == int(count)
            case "flush", _:
                self.book.results.hurry_deletes(self.now)
            case "run", [until, *answers]:
                self._run(START + float(until), pairs(answers))
            case "events", _:
                kinds = [each.kind.value for each in self.events if each.kind not in _SILENT]
                assert kinds[self._seen :] == rest, kinds
                self._seen = len(kinds)
            case "told", [kind, name, *details]:
                told = [e for e in self.events if (e.kind.value, e.message_id) == (kind, name)][-1]
                self._check(told, details)
            case "count", [kind, count]:
                assert [each.kind.value for each in self.events].count(kind) == int(count)
            case (("due" | "expiry"), [time]):
                since = self.now - START if time.startswith("+") else 0.0
                expected = pytest.approx(value_of(time) + since, abs=1e-3)
                assert self.due(16 if verb == "due" else 0) == expected
            case (("left" | "ending"), [count]):
                found = len(self.book) if verb == "left" else self.book.ending
                assert found == int(count)
            case "waits", _:
                for name, waits in pairs(rest).items():
                    assert self.book.waits_behind(name) is waits
            case _, ["gone"]:
                assert self.book.get(verb) is None
            case _:
                self._check(self.lease(verb), rest)

    def _receive(self, name: str, options: dict[str, Any], result: str) -> None:
        options = {_SHORT.get(key, key): value for key, value in options.items()}
        every, poll, hidden = (options.pop(each, None) for each in ("every", "poll", "hidden"))
        if "group" in options:
            number = options.pop("number", re.sub(r"\D", "", name))
            options = {"in_order": True, "sequence_number": number, **options}
        given = {key: value for key, value in options.items() if key in _TERMS}
        terms = LeaseTerms(**{"visibility_timeout": 30, "threshold": 10, **given})
        about = {key: value for key, value in options.items() if key not in _TERMS}
        receive = Receive(
            message_id=name,
            hidden_for=terms.visibility_timeout if hidden is None else hidden,
            sent_at=self.now - (poll or 0.0),
            arrived_at=self.now,
            **{"queue_url": QUEUE, "receipt_handle": name, "receive_count": 1, **about},
        )
        assert self.book.receive(receive, terms=terms).value == result
        self.now += every or 0.0

    def _say(self, verb: str, name: str, *more: str) -> bool:
        match verb, more:
            case "done", _:
                return self.book.done(name, self.now)
            case "start", _:
                return self.book.note_start(name, self.now)
            case "drop", _:
                return self.book.let_expire(name, self.now, *more)
            case _, [delay, *cause]:
                return self.book.release(name, float(delay), self.now, *map(text_of, cause))
        return self.book.release(name, 0, self.now)

    def _run(self, until: float, answers: dict[str, Any]) -> None:
        for _ in range(10_000):
            for call in self.plan():
                self.answer(call, answers[call.entries[0].action.value])
            if (due := self.due() + START) > until:
                self.now = until
                return
            self.now = max(self.now, due)
        raise AssertionError("it never ends")

    def _check(self, subject: Any, details: list[str]) -> None:
        for name, expected in pairs(details).items():
            if name in ("is_lost", "is_ours", "is_confirmed"):
                found = getattr(policy, name)(subject, self.now)
            else:
                found = getattr(subject, name)
            found = getattr(found, "value", found)
            if name in _TIMES:
                found, expected = found - START, pytest.approx(expected)
            assert found == expected, f"{name}={found}"


def _split(words: list[str]) -> list[list[str]]:
    return [each.split() for each in " ".join(words).split("|") if each]


def _summary(call: Call) -> list[tuple[str, str, int]]:
    return [(each.action.value, each.receipt_handle, each.timeout) for each in call.entries]


def _summary_of(words: list[str]) -> list[tuple[str, str, int]]:
    action, found = "", []
    for word in words:
        name, _, timeout = word.partition("=")
        if name in ("extend", "release", "delete"):
            action = name
        else:
            found.append((action, name, int(timeout or 0)))
    return found
