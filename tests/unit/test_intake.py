"""An answer from its receive to its hand-over: only what is new, certainly ours and in turn is run.

What must wait keeps its lease and its order, and is released if its consumer ends.
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from kombu import Connection

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.message import Arrived, task_of
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import Intake
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from tests.support.waiting import PATIENCE
from tests.unit.scripts import pairs, table

URL, TIMEOUT = "https://sqs/1/q", 30
TERMS = LeaseTerms.of(TIMEOUT)
QUEUE = ConsumedQueue(name="q", url=URL, lease_url=URL, terms=TERMS, timeout=TIMEOUT)
#: Of an answer that is 25 s old less than the threshold is left.
LATE = """
a message of a late answer waits until SQS confirms an extension:
    receive m1 age=25; look; taken; unsure yes; room 99; confirm m1; look; taken m1; unsure no;
    room 99
that of an answer whose timeout is not known does, too:
    receive m1 timeout=none; taken; confirm m1; look; taken m1
one that is not extended does not:
    receive m1 age=25 extend=no; taken m1
those behind it keep their order:
    receive slow m2 age=15 slow=20; taken; confirm slow; look; taken slow m2
other answers do not wait:
    receive m1 age=25; receive m2; taken m2
a late answer waits once for all its messages, and lets them expire:
    receive m1 m2 m3 age=25; +9.9 look; held m1 m2 m3; +0.2 look; taken; held; released; unsure no
one that SQS does not confirm is left, and those behind it are handed over:
    receive m1 m2 age=25; confirm m2; lose m1; look; taken m2; held m2
one that others may have received before its extension is left:
    receive m1 age=25; share m1; +6 confirm m1; look; taken; held
one that is extended in time runs, although an unanswered release may end its lease:
    receive m1 age=25; share m1; +4 confirm m1; look; taken m1
one whose lease ends meanwhile is left:
    receive m1 m2 m3 age=25; release m1; drop m2; confirm m3; look; taken m3
the worker learns once of each new message that waits:
    receive m1 m2; receive m3 age=25; receive g1 g2; taken m1 m2 g1; kept m3 g2; confirm m3; look;
    taken m1 m2 g1 m3; kept m3 g2
"""
ROOM = """
messages beyond the credit are handed over, and leave less room:
    allow 2; receive m1 m2 m3; taken m1 m2 m3; kept; room -1; allow 1; room -2; allow 5; room 2;
    free 2
one whose lease ends when it is handed over takes no credit:
    allow 2; missed 1; receive m1 m2; free 1; room 1
the next of a group takes room as soon as its turn is near:
    allow 1; receive g1 g2; taken g1; room 0; done g1; room -1; next-up 1; deleted g1; look;
    taken g1 g2; room -1; next-up 0
"""
ENDS = """
at the end of its consumer what waits is released from the last:
    receive m1 m2 m3 age=25; end other; released; end q; released m3 m2 m1;
    because m1=not_delivered m2=not_delivered m3=not_delivered; confirm m1 m2 m3; look; taken
an answer that arrives after the end is released, unless the consumer is there again:
    end q; receive m1 m2; taken; released m2 m1; begin q; receive m3; taken m3
what waits for its group is released at the end of its consumer, and nothing else:
    receive g1 g2 g3; end other; waiting 2; end q; waiting 0; held g1; released g3 g2;
    because g2=consumer_closed g3=consumer_closed
a redelivery is neither handed over again nor released:
    receive m1; receive m1' m2; taken m1 m2; released
behind one that is left to SQS those of its group are released from the last:
    lapse g1; receive g1 g2 g3 h1; taken h1; released g3 g2;
    because g2=group_stopped g3=group_stopped
an error during an answer leaves none of its messages leased:
    lapse g2; receive m1 g2 g3 error; taken; released g3 m1
"""
TURNS = """
the first of each group is handed over, and the others wait:
    receive g1 g2 g3; receive h1 h2; taken g1 h1; waiting 3
the next is handed over once the delete is confirmed:
    receive g1 g2 g3; done g1; look; taken g1; deleted g1; look; taken g1 g2; look; taken g1 g2
one that is released with the first is not handed over:
    receive g1 g2; release g1; look; taken g1; waiting 0; held
without room a message is released with all behind it:
    waits 1; receive g1 g2 g3 g4; waiting 1; because g3=no_room_to_wait g4=group_stopped
but one message of each group may wait beyond the room, as its turn is near:
    waits 0; receive g1; done g1; receive g2 g3; receive h1; done h1; receive h2 h3; waiting 2;
    because g3=no_room_to_wait h3=no_room_to_wait; deleted g1; look; taken g1 h1 g2
one whose lease has expired is not handed over:
    receive g1 g2; +31 deleted g1; look; taken g1; waiting 0; held
one that was extended after its expiry is not handed over:
    receive g1 g2; share g2; deleted g1; look; taken g1; held
one that has waited for half of its time is released:
    receive g1 g2 max_lease=50; +26 deleted g1; look; taken g1; because g2=waited_long
what is released is hidden from our own polls:
    waits 1; poll-left 7; receive g1 g2 g3; end q; delays g2=7 g3=7
a receive may return messages for the room to wait, and one to hand over:
    waits 3; wanted 4; receive g1 g2 g3; wanted 2; receive g4; wanted 1
"""


class Scene:
    """An intake on a keeper whose clock the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.keeper = ThreadKeeper(SimulatedSqs(self.clock), clock=self.clock)
        self.taken: list[str] = []
        self.kept: list[str] = []
        self.released: list[str] = []
        self.lapses: set[str] = set()
        self.missed = self.poll_left = 0
        self._receive, self._release = self.keeper.receive, self.keeper.release
        self.keeper.receive = self.receive_or_fail  # type: ignore[method-assign]
        self.keeper.release = self.note_release  # type: ignore[method-assign]
        self.begin(90)

    def begin(self, most_waiting: int) -> None:
        self.waitlist = GroupWaitlist(
            keeper=self.keeper, limit=most_waiting, poll_left=lambda lease: self.poll_left
        )
        self.intake = Intake(
            keeper=self.keeper,
            waitlist=self.waitlist,
            lock=threading.RLock(),
            hand_over=self._hand_over,
            keep=lambda messages: self.kept.extend(each.handle for each in messages),
            release_one=lambda message, cause: self.note_release(
                message["ReceiptHandle"], cause=cause
            ),
            heir=lambda queue: None,
        )
        self.intake.allow(100)

    def play(self, script: str) -> Scene:
        for step in script.split(";"):
            words = step.split()
            if words[0].startswith("+"):
                self.clock.advance(float(words.pop(0)))
            self._do(*words)
        return self

    def _do(self, verb: str, *words: str) -> None:
        match verb, words:
            case "receive", [*_, "error"]:
                with pytest.raises(ZeroDivisionError):
                    self.receive(*words)
            case "receive", _:
                self.receive(*words)
            case (("taken" | "kept" | "released"), _):
                assert getattr(self, verb) == [*words]
            case "held", _:
                assert [each.message_id for each in self._leases(Goal.HOLD)] == [*words]
            case "because", _:
                causes = {each.message_id: each.cause for each in self._leases(Goal.RELEASE)}
                assert causes == pairs([*words])
            case "delays", _:
                delays = {
                    each.message_id: each.release_delay for each in self._leases(Goal.RELEASE)
                }
                assert delays == pairs([*words])
            case (("room" | "free"), [count]):
                assert getattr(self.intake, verb) == int(count)
            case "unsure", [state]:
                assert self.intake.is_unsure is (state == "yes")
            case "waiting", [count]:
                assert len(self.waitlist) == int(count)
            case (("wanted" | "next-up"), [count]):
                name = "most_wanted" if verb == "wanted" else "next_up"
                assert getattr(self.waitlist, name) == int(count)
            case "look", _:
                self.intake.look()
            case "allow", [limit]:
                self.intake.allow(int(limit))
            case (("end" | "begin"), _):
                self.intake.end(words) if verb == "end" else self.intake.begin(*words)
            case "waits", [limit]:
                self.begin(int(limit))
            case "poll-left", [seconds]:
                self.poll_left = int(seconds)
            case "missed", [count]:
                self.missed = int(count)
            case "lapse", _:
                self.lapses.update(words)
            case "done", [name]:
                self.keeper.done(name)
            case "release", [name]:
                self._release(name)
            case "drop", [name]:
                self.keeper.let_expire(name)
            case _:
                for name in words:
                    self._change(verb, self.lease(name))

    def _change(self, verb: str, lease: Lease) -> None:
        """Do to a lease what an answer of SQS does."""
        if verb == "confirm":
            lease.extensions, lease.expires_at = 1, self.clock() + TIMEOUT
        elif verb == "lose":
            lease.status = LeaseStatus.LOST
        elif verb == "share":
            lease.is_exclusive = False
        else:
            assert verb == "deleted"
            lease.is_deleted = True
            self.keeper.let_expire(lease.receipt_handle)

    def receive(self, *words: str) -> None:
        """Receive messages in one answer. `g1` is the first of a group, `m1'` is m1 again."""
        given = pairs([word for word in words if "=" in word])
        age, timeout = given.pop("age", 0), given.pop("timeout", TIMEOUT)
        slow = replace(TERMS, threshold=given.pop("slow", 10))
        queue = replace(QUEUE, terms=replace(TERMS, in_order=True, **given), timeout=timeout)
        messages = [message(word) for word in words if "=" not in word]
        task_terms = {"slow": slow}
        self.intake.take(
            replace(queue, task_terms=task_terms), messages, sent_at=self.clock() - age
        )

    def receive_or_fail(self, url: str, given: Any, **options: Any) -> ReceivedAs:
        if given["MessageId"] == "error":
            raise ZeroDivisionError
        receipt = self._receive(url, given, **options)
        return ReceivedAs.LAPSED if given["MessageId"] in self.lapses else receipt

    def note_release(self, handle: str, delay: float = 0, cause: str = "") -> bool:
        self.released.append(handle)
        return self._release(handle, delay, cause)

    def _hand_over(self, messages: list[Arrived]) -> int:
        self.taken += [each.handle for each in messages]
        return self.missed

    def lease(self, name: str) -> Lease:
        lease = self.keeper.find(name)
        assert lease is not None
        return lease

    def _leases(self, goal: Goal) -> list[Lease]:
        leases = [lease for lease in self.keeper.leases() if lease.goal is goal]
        return [lease for lease in leases if lease.message_id not in self.lapses]


def message(name: str) -> dict[str, Any]:
    handle, name = name, name.rstrip("'")
    grouped = {"MessageGroupId": name[0], "SequenceNumber": name[1:]}
    body = f'{{"headers": {{"task": "{name}", "id": "id-{name}"}}, "properties": {{}}}}'
    return {
        "MessageId": name,
        "ReceiptHandle": handle,
        "Body": body,
        "Attributes": grouped if name[0] in "gh" else {},
    }


@table(LATE)
def test_if_too_little_is_left(script: str) -> None:
    Scene().play(script)


@table(ROOM)
def test_of_credit(script: str) -> None:
    Scene().play(script)


@table(ENDS)
def test_of_what_is_not_handed_over(script: str, caplog: pytest.LogCaptureFixture) -> None:
    Scene().play(script)
    if "lapse g1" in script:
        said = "message g1 of q, task g1[id-g1], is not started: it arrived after its visibility"
        assert said in caplog.text


@table(TURNS)
def test_of_turns(script: str) -> None:
    Scene().play(script)


def test_a_message_is_leased_by_its_tasks_terms() -> None:
    scene = Scene().play("receive m1 slow age=2 slow=20 max_lease=77")
    other, slow = scene.lease("m1"), scene.lease("slow")
    assert (other.terms.max_lease, slow.terms.threshold) == (77, 20)
    assert (slow.task, slow.task_id) == ("slow", "id-slow")
    assert (slow.received_at, slow.expires_at) == (998.0, 1028.0)


@pytest.mark.parametrize("names", ["m1 m2", "g1 g2"])
def test_of_an_answer_that_is_being_leased_at_the_end_nothing_is_left(names: str) -> None:
    # A message that began to wait for its group now would wait for a consumer that has ended.
    scene = Scene()
    lease = scene._receive

    def lease_and_end(*args: Any, **options: Any) -> ReceivedAs:
        receipt = lease(*args, **options)
        scene.intake.end(["q"])
        return receipt

    scene._receive = lease_and_end
    scene.play(f"receive {names}; taken; held; waiting 0")


def test_threads_that_take_answers_and_look_at_once_hand_each_message_over_once_in_order() -> None:
    scene, begins = Scene(), threading.Barrier(4)

    def take(stem: str) -> None:
        begins.wait(PATIENCE)
        for start in range(0, 50, 10):
            scene.receive(*(f"{stem}{start + each}" for each in range(10)))
            scene.intake.look()

    threads = [threading.Thread(target=take, args=(stem,)) for stem in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(scene.taken) == 200
    for stem in "abcd":
        own = [int(name[1:]) for name in scene.taken if name[0] == stem]
        assert own == [*range(50)]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def payload(headers: object, **fields: object) -> str:
    return json.dumps({"body": "W10=", "headers": headers, "properties": {}, **fields})


BOTH = {"task": "shop.pay", "id": "42"}


@pytest.mark.parametrize("encode", [str, encoded], ids=["plain", "base64"])
@pytest.mark.parametrize(
    ("body", "task"),
    [
        pytest.param(payload(BOTH), ("shop.pay", "42"), id="both"),
        pytest.param(payload({"task": "ä\u2028", "id": "42"}), ("ä\u2028", "42"), id="not ASCII"),
        pytest.param(payload({"task": "shop.pay"}), ("shop.pay", None), id="no id"),
        pytest.param(payload({"id": "42"}), (None, "42"), id="no name"),
        pytest.param(payload({"task": {"a": 1}, "id": "42"}), (None, "42"), id="name is no text"),
        pytest.param(payload(None), (None, None), id="headers are null"),
        pytest.param('{"properties": {}}', (None, None), id="without headers"),
        pytest.param(
            json.dumps({"headers": BOTH, "body": "W10="}), (None, None), id="without properties"
        ),
        pytest.param("{}", (None, None), id="an empty object"),
        pytest.param('{"a":' * 100_000, (None, None), id="deep, and right so far"),
    ],
)
def test_name_and_id_are_read_from_a_body_with_and_without_base64(
    encode: Any, body: str, task: tuple[str | None, str | None]
) -> None:
    assert task_of({"Body": encode(body)}) == task


@pytest.mark.parametrize(
    "body",
    [None, 5, "", "hello", "\ud800", "/w==", "null", encoded("5"), encoded("[" * 100_000)],
)
def test_junk_has_neither(body: Any) -> None:
    # tests/fuzz sends more of it.
    assert task_of({"Body": body}) == task_of({}) == (None, None)


@pytest.mark.parametrize("is_encoded", [True, False])
def test_what_kombu_sends_is_read(monkeypatch: pytest.MonkeyPatch, *, is_encoded: bool) -> None:
    sent: list[str] = []
    predefined = {"q": {"url": "https://sqs.us-east-1.amazonaws.com/1/q"}}
    options = {"predefined_queues": predefined, "sqs_base64_encoding": is_encoded}
    with Connection("sqs://k:s@", transport_options=options) as made:
        channel = made.channel()
        client = channel.sqs(queue="q")
        monkeypatch.setattr(
            client, "send_message", lambda **asked: sent.append(asked["MessageBody"])
        )
        made.Producer(channel).publish([[], {}, {}], routing_key="q", headers=BOTH)
    assert task_of({"Body": sent[0]}) == ("shop.pay", "42")
