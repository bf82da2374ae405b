"""Both ends of a link, and scripts of what happens at them. The test says when a message arrives.

The steps of a script, each maybe after some seconds (`+21 makes extend m`):

- `receive m handle=n count=2 -> redelivered`: the keeper receives, and hands over what is new.
  `arrive m` does not hand over: `deliver` does, and `keep` sends the handles of what waits.
- `done m`, `drop m CAUSE`, `disown m`, `start m`, `release m DELAY CAUSE`: what the worker says.
- `exchange`: both ends handle all messages. `take`: the keeper does. `hear`: the worker does.
- `makes delete m : lost`: an exchange, all calls that are due, their answer, and another exchange.
  `begins release m` only begins them, once the keeper has heard; `answers done` answers one.
- `dies`: the keeper dies, and another starts. The worker hears nothing more of the first.
- `is m goal=hold`, `at-keeper m ...`, `unknown m`, `owns m=yes`, `left 1`: what holds now.
- `get m1 m2 count=2`: the keeper receives messages of a group, which end with their numbers, and
  hands over those that wait for no other. Their handles are "m1-2" and "m2-2". `waits m1-2=no`.
- `releases m3-1 m1-1`: all calls are made and confirmed. These were releases, m1 being the last.
- `channel 10`, `give 4`, `end 2`, `room 8`: a channel with a prefetch count, and its room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.current.table import RECORD_BYTES, Flag, key_of
from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import Action, LeaseTerms
from celery_sqs_heartbeat.leases.message import Arrived
from tests.support.linked import CHANNEL, Linked, message_of
from tests.unit.scripts import names_of, pairs

QUEUE, START = "https://q", 1000.0
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
IN_ORDER = replace(TERMS, in_order=True)
TIMES = {"expires_at", "hidden_until", "started_at"}


class Ends(Linked):
    """Both ends, on a clock that the test moves."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)
        self.prefetch = self.held = 0

    def play(self, script: str) -> Ends:
        for step in script.split(";"):
            words, _, result = (part.strip() for part in step.partition("->"))
            given = words.split()
            if given[0].startswith("+"):
                self.clock.advance(float(given.pop(0)))
            self._do(given[0], given[1:], result)
        return self

    def _do(self, verb: str, words: list[str], result: str) -> None:
        keeper, end = self.worker, self.elsewhere
        match verb, words:
            case (("receive" | "arrive"), [names, *options]):
                for name in names_of(names):
                    self._receive(name, pairs(options), result or "new", is_given=verb == "receive")
            case (("done" | "drop" | "disown" | "start"), [name, *more]):
                say = {"drop": keeper.let_expire, "start": keeper.note_start}
                found = say.get(verb, getattr(keeper, verb, None))(name, *more)
                assert found is (result != "unknown")
            case "release", [name, *more]:
                delay, *cause = more or ["0"]
                assert keeper.release(name, float(delay), *cause) is (result != "unknown")
            case "makes", _:
                self.deliver()
                words, _, outcome = " ".join(words).partition(" : ")
                assert self._step() == words
                while end.calls.out:
                    end.calls.answer(0, [Outcome(outcome or "done")])
                end.keeper.step()
                self.deliver()
            case "begins", _:
                end.take()
                assert self._step() == " ".join(words)
            case "answers", [outcome]:
                end.calls.answer(0, [Outcome(outcome)])
                end.keeper.step()
            case "steps", _:
                end.keeper.step()
            case "exchange", _:
                self.deliver()
            case (("hear" | "pull"), _):
                self.hear() if verb == "hear" else keeper.pull()
            case (("take" | "keep" | "deliver"), _):
                getattr(end, verb)()
            case "dies", _:
                self.die(0)
                self.start()
            case "get", _:
                self._get([word for word in words if "=" not in word], pairs(words), result)
            case "waits", _:
                for name, expected in pairs(words).items():
                    assert end.keeper.waits_behind(name) is expected
            case "releases", _:
                released = self._confirm_all()
                assert sorted(released[:-1]) == sorted(words[:-1])
                assert released[-1:] == words[-1:]
            case "keeper-releases", [name]:
                end.keeper.release(name)
            case "keeper-drops", [name]:
                end.keeper.let_expire(name)
            case "garble", [name]:
                place = self.table.place_of(key_of(name))
                assert place is not None
                at = (place + 1) * RECORD_BYTES
                self.table._memory[at + 20] ^= 1
            case "is", [name, *details]:
                self._check(keeper.find(name), details)
            case "at-keeper", [name, *details]:
                self._check(end.keeper.find(name), details)
            case "unknown", [name]:
                assert keeper.find(name) is None
            case (("owns" | "lost" | "disowned"), _):
                ask = keeper.owns if verb == "owns" else getattr(keeper, f"is_{verb}")
                for name, expected in pairs(words).items():
                    assert ask(name) is expected
            case (("left" | "ending"), [count]):
                assert (len(keeper) if verb == "left" else keeper.ending) == int(count)
            case "flags", [name, flag]:
                flags = self.table.read(key_of(name)).flags & (Flag.RELEASING | Flag.OVER)
                assert flags == Flag[flag]
            case "quiet", _:
                assert self.is_quiet
            case _:
                self._do_room(verb, words)

    def _do_room(self, verb: str, words: list[str]) -> None:
        keeper, end = self.worker, self.elsewhere
        match verb, words:
            case (("channel" | "prefetch"), [count]):
                self.prefetch = int(count)
                keeper.on_arrived = self._take
                self._allow()
            case (("give" | "hand-over"), [count]):
                for number in range(int(count)):
                    self.clock.advance(0.001)
                    self._receive(f"g{self.clock()}-{number}", {}, "new", is_given=False)
                end.deliver()
                if verb == "give":
                    keeper.pull()
            case "end", [count]:
                for _ in range(int(count)):
                    self.held -= 1
                    self._allow()
            case "room", [count]:
                end.read_rooms()
                assert end.limit - end.handed_over == int(count)
            case "held", [count]:
                assert self.held == int(count)
            case "say", _:
                keeper.say("tick")
            case "push", _:
                keeper.push()
            case "close", _:
                keeper.close(CHANNEL)
            case _:
                raise AssertionError(verb)

    def _allow(self) -> None:
        self.worker.allow(CHANNEL, lambda: (self.prefetch - self.held, self.prefetch))

    def _take(self, arrived: list[tuple[int, Arrived]]) -> None:
        self.held += len(arrived)

    def _receive(self, name: str, given: dict[str, Any], result: str, *, is_given: bool) -> None:
        message = message_of(name, given.get("handle", name), given.get("count", 1))
        receive = self.receive if is_given else self.elsewhere.receive
        assert receive(QUEUE, message, TERMS, 30, given.get("poll", 0.0)).value == result

    def _get(self, names: list[str], given: dict[str, Any], result: str) -> None:
        end, count = self.elsewhere, given.get("count", 1)
        for name in names:
            message = message_of(name, f"{name}-{count}", count)
            message["Attributes"] |= {"MessageGroupId": "g", "SequenceNumber": name[1:]}
            receipt = end.receive(QUEUE, message, IN_ORDER, 30, 0.0)
            assert not result or receipt.value == result
        while end.waiting and not end.keeper.waits_behind(end.waiting[0].handle):
            end.deliver(1)
        end.keep()
        self.worker.pull()

    def _confirm_all(self) -> list[str]:
        """Have SQS execute all calls. Return the handles of the releases, in their order."""
        end, released = self.elsewhere, list[str]()
        end.keeper.step()
        while end.calls.out:
            call = end.calls.answer(0, [Outcome.DONE])
            released += [e.receipt_handle for e in call.entries if e.action is Action.RELEASE]
            end.keeper.step()
        return released

    def _step(self) -> str:
        self.elsewhere.keeper.step()
        entries = [each for call, _ in self.elsewhere.calls.out for each in call.entries]
        return " ".join(f"{each.action.value} {each.receipt_handle}" for each in entries)

    def _check(self, lease: Any, details: list[str]) -> None:
        for name, expected in pairs(details).items():
            found = getattr(getattr(lease, name), "value", getattr(lease, name))
            assert found == (START + expected if name in TIMES else expected), name
