"""What happens to an answer from its receive to its hand-over: waits, room, ends."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived, GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import NOT_DELIVERED, Intake
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from tests.support.waiting import PATIENCE

URL = "https://sqs/1/q"
TIMEOUT = 30
TERMS = LeaseTerms.of(TIMEOUT)
QUEUE = ConsumedQueue(name="q", url=URL, lease_url=URL, terms=TERMS, timeout=TIMEOUT)
IN_ORDER = replace(QUEUE, terms=replace(TERMS, in_order=True))
#: So old is an answer of which less than the threshold is left, in seconds.
LATE = 25


class Scene:
    """A keeper, and an intake with its waiting messages.

    Attributes:
        taken: The messages that were handed over.
        kept: Those that the worker learned of, because they were not handed over at once.
        ended: How many of the messages that are handed over next have ended by then.
        released: The receipt handles of the messages that were released, in this order.
    """

    def __init__(self, limit: int = 100) -> None:
        self.clock = FakeClock(1000.0)
        self.keeper = ThreadKeeper(SimulatedSqs(self.clock), clock=self.clock)
        self.taken: list[str] = []
        self.kept: list[str] = []
        self.ended = 0
        self.released: list[str] = []
        release, lock = self.keeper.release, threading.RLock()

        def note(handle: str, delay: float = 0, cause: str = "") -> bool:
            self.released.append(handle)
            return release(handle, delay, cause)

        self.keeper.release = note  # type: ignore[assignment, method-assign]
        self.waitlist = GroupWaitlist(keeper=self.keeper, limit=90)
        self.intake = Intake(
            keeper=self.keeper,
            waitlist=self.waitlist,
            lock=lock,
            hand_over=self._take,
            keep=self._keep,
            release_one=lambda message, cause: note(message["ReceiptHandle"], cause=cause),
            heir=lambda queue: None,
        )
        self.intake.allow(limit)

    def receive(
        self, *messages: dict[str, Any], queue: ConsumedQueue = QUEUE, age: float = 0
    ) -> None:
        """Receive messages in one answer to a poll that was sent so many seconds ago."""
        self.intake.take(queue, messages, sent_at=self.clock() - age)

    def _take(self, messages: list[Arrived]) -> int:
        self.taken += [each.handle for each in messages]
        return self.ended

    def _keep(self, messages: list[Arrived]) -> None:
        self.kept += [each.handle for each in messages]

    def lease(self, name: str) -> Lease:
        lease = self.keeper.find(name)
        assert lease is not None
        return lease

    def confirm(self, *names: str) -> None:
        """Do what the confirmation of an extension does."""
        for name in names:
            lease = self.lease(name)
            lease.extensions, lease.expires_at = 1, self.clock() + TIMEOUT

    def held(self) -> list[str]:
        return [each.message_id for each in self.keeper.leases() if each.goal is Goal.HOLD]

    def causes(self) -> dict[str, str]:
        """Return why each message is being released."""
        leases = self.keeper.leases()
        return {each.message_id: each.cause for each in leases if each.goal is Goal.RELEASE}


def message(name: str, *, task: str = "t", group: str | None = None) -> dict[str, Any]:
    """Return a message. A name in a group ends with the message's number."""
    attributes = {"MessageGroupId": group, "SequenceNumber": name[1:]} if group else {}
    body = f'{{"headers": {{"task": "{task}", "id": "{name}"}}, "properties": {{}}}}'
    return {"MessageId": name, "ReceiptHandle": name, "Body": body, "Attributes": attributes}


def messages(*names: str, group: str | None = None) -> list[dict[str, Any]]:
    return [message(name, group=group) for name in names]


def test_a_message_is_leased_by_its_tasks_terms_and_handed_over() -> None:
    scene = Scene()
    queue = replace(QUEUE, task_terms={"slow": replace(TERMS, max_lease=77.0)}, max_receive_count=3)
    scene.receive(message("m1"), message("m2", task="slow"), queue=queue, age=2)
    assert scene.taken == ["m1", "m2"]
    assert [scene.lease(name).terms.max_lease for name in scene.taken] == [TERMS.max_lease, 77.0]
    lease = scene.lease("m2")
    assert (lease.task, lease.task_id, lease.max_receive_count) == ("slow", "m2", 3)
    assert (lease.received_at, lease.expires_at) == (998.0, 1028.0)


@pytest.mark.parametrize(("timeout", "age"), [(TIMEOUT, LATE), (None, 0)])
def test_a_late_or_unknown_message_waits_until_sqs_confirms_an_extension(
    timeout: int | None, age: float
) -> None:
    scene = Scene()
    scene.receive(message("m1"), queue=replace(QUEUE, timeout=timeout), age=age)
    scene.intake.look()
    assert (scene.taken, scene.intake.is_unsure, scene.intake.room) == ([], True, 99)
    scene.confirm("m1")
    scene.intake.look()
    assert (scene.taken, scene.intake.is_unsure, scene.intake.room) == (["m1"], False, 99)


@pytest.mark.parametrize(("wait", "is_ours"), [(4, True), (6, False)])
def test_of_a_late_message_only_an_extension_in_time_excludes_other_receivers(
    wait: float, is_ours: bool
) -> None:
    """Also if an unanswered release may end its lease. Otherwise it would never run."""
    scene = Scene()
    scene.receive(message("m1"), age=LATE)
    scene.lease("m1").is_exclusive = False
    scene.clock.advance(wait)
    scene.confirm("m1")
    scene.intake.look()
    assert scene.taken == ["m1"] * is_ours


def test_a_message_that_is_not_extended_does_not_wait_for_a_confirmation() -> None:
    scene = Scene()
    terms = replace(TERMS, extend=False)
    scene.receive(message("m1"), queue=replace(QUEUE, terms=terms), age=LATE)
    assert scene.taken == ["m1"]


def test_the_messages_behind_one_that_waits_keep_their_order() -> None:
    scene = Scene()
    # Only for the first task is too little left.
    queue = replace(QUEUE, task_terms={"slow": replace(TERMS, threshold=20.0)})
    scene.receive(message("m1", task="slow"), message("m2"), queue=queue, age=15)
    assert scene.taken == []
    scene.confirm("m1")
    scene.intake.look()
    assert scene.taken == ["m1", "m2"]


def test_a_late_answer_waits_once_for_all_its_messages(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.receive(*messages("m1", "m2", "m3"), age=LATE)
    # The default threshold.
    scene.clock.advance(9.9)
    scene.intake.look()
    assert scene.held() == ["m1", "m2", "m3"]
    scene.clock.advance(0.2)
    scene.intake.look()
    assert (scene.taken, scene.held(), scene.released) == ([], [], [])
    assert not scene.intake.is_unsure
    assert caplog.text.count("SQS confirmed no extension") == 3


def test_a_message_that_sqs_does_not_confirm_is_not_handed_over_but_those_behind_it_are() -> None:
    scene = Scene()
    scene.receive(*messages("m1", "m2"), age=LATE)
    scene.confirm("m2")
    scene.lease("m1").status = LeaseStatus.LOST
    scene.intake.look()
    assert scene.taken == ["m2"]
    assert scene.held() == ["m2"]


@pytest.mark.parametrize("end", ["release", "let_expire"])
def test_a_message_whose_lease_ends_while_it_waits_for_a_confirmation_is_not_handed_over(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.receive(*messages("m1", "m2"), age=LATE)
    getattr(scene.keeper, end)("m1")
    scene.confirm("m2")
    scene.intake.look()
    assert scene.taken == ["m2"]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("ended", "released"),
    [
        pytest.param(["q"], ["m3", "m2", "m1"], id="its consumer"),
        pytest.param(["other", "q"], ["m3", "m2", "m1"], id="its channel"),
        pytest.param(["other"], [], id="another consumer"),
    ],
)
def test_what_waits_is_released_at_the_end_from_the_last_message(
    ended: list[str], released: list[str]
) -> None:
    scene = Scene()
    scene.receive(*messages("m1", "m2", "m3"), age=LATE)
    scene.intake.end(ended)
    assert scene.released == released
    assert scene.causes() == dict.fromkeys(released, NOT_DELIVERED)
    scene.confirm("m1", "m2", "m3")
    scene.intake.look()
    assert scene.taken == ([] if released else ["m1", "m2", "m3"])


def test_an_answer_that_arrives_after_the_end_is_released_unless_its_consumer_has_come_back() -> (
    None
):
    scene = Scene()
    scene.intake.end(["q"])
    scene.receive(*messages("m1", "m2"))
    assert (scene.taken, scene.released) == ([], ["m2", "m1"])
    scene.intake.begin("q")
    scene.receive(message("m3"))
    assert scene.taken == ["m3"]


@pytest.mark.parametrize("group", [None, "g"])
def test_of_an_answer_that_is_being_leased_at_the_end_nothing_is_left(
    group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A message that began to wait for its group now would wait for a consumer that has ended.
    scene = Scene()
    receive = scene.keeper.receive

    def receive_and_end(*args: Any, **options: Any) -> ReceivedAs:
        receipt = receive(*args, **options)
        scene.intake.end(["q"])
        return receipt

    monkeypatch.setattr(scene.keeper, "receive", receive_and_end)
    scene.receive(*messages("m1", "m2", group=group), queue=IN_ORDER)
    assert (scene.taken, scene.held(), len(scene.waitlist)) == ([], [], 0)


def test_an_error_amid_an_answer_leaves_none_of_its_messages_leased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    receive = scene.keeper.receive

    def fail(url: str, message: dict[str, Any], **options: Any) -> ReceivedAs:
        if message["MessageId"] == "m4":
            raise ZeroDivisionError
        receipt = receive(url, message, **options)
        return ReceivedAs.LAPSED if message["MessageId"] == "m2" else receipt

    monkeypatch.setattr(scene.keeper, "receive", fail)
    # The third one would be released behind the second one.
    answer = [message("m1"), *messages("m2", "m3", group="g"), message("m4")]
    with pytest.raises(ZeroDivisionError):
        scene.receive(*answer)
    assert (scene.taken, scene.released) == ([], ["m3", "m1"])


def test_a_redelivery_is_not_handed_over_again_and_neither_is_it_released() -> None:
    scene = Scene()
    scene.receive(message("m1"))
    scene.receive({**message("m1"), "ReceiptHandle": "m1 again"}, message("m2"))
    assert (scene.taken, scene.released) == (["m1", "m2"], [])


def test_behind_a_message_that_is_left_to_sqs_those_of_its_group_are_released_from_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    receive = scene.keeper.receive

    def lapse(url: str, message: dict[str, Any], **options: Any) -> ReceivedAs:
        if message["MessageId"] == "m1":
            return ReceivedAs.LAPSED
        return receive(url, message, **options)

    monkeypatch.setattr(scene.keeper, "receive", lapse)
    answer = [*messages("m1", "m2", "m3", group="g"), message("n1", group="h")]
    scene.receive(*answer, queue=IN_ORDER)
    assert (scene.taken, scene.released) == (["n1"], ["m3", "m2"])
    assert set(scene.causes().values()) == {GROUP_STOPPED}
    assert "message m1 of q, task t[m1], is not started: it arrived after" in caplog.text


def test_the_next_of_a_group_takes_room_as_soon_as_its_turn_is_near() -> None:
    scene = Scene(limit=1)
    scene.receive(*messages("m1", "m2", group="g"), queue=IN_ORDER)
    lease = scene.lease("m1")
    assert (scene.taken, scene.intake.room) == (["m1"], 0)
    scene.keeper.done("m1")
    assert (scene.taken, scene.intake.room) == (["m1"], -1)
    lease.is_deleted = True
    scene.keeper.let_expire("m1")
    scene.intake.look()
    assert (scene.taken, scene.intake.room) == (["m1", "m2"], -1)


def test_messages_beyond_the_credit_are_handed_over_and_leave_less_room() -> None:
    # Here, they would be lost with this process.
    scene = Scene(limit=2)
    scene.receive(*messages("m1", "m2", "m3"))
    assert (scene.taken, scene.kept) == (["m1", "m2", "m3"], [])
    for limit, room in ((2, -1), (1, -2), (5, 2)):
        scene.intake.allow(limit)
        assert (scene.intake.room, scene.intake.free) == (room, room)


def test_the_worker_is_told_once_of_each_new_message_that_waits() -> None:
    # It would be lost with this process until its visibility timeout ends. Other answers do not
    # wait for it.
    scene = Scene()
    scene.receive(*messages("m1", "m2"))
    scene.receive(message("m3"), age=LATE)
    scene.receive(*messages("n1", "n2", group="g"), queue=IN_ORDER)
    assert (scene.taken, scene.kept) == (["m1", "m2", "n1"], ["m3", "n2"])
    scene.confirm("m3")
    scene.intake.look()
    assert scene.taken == ["m1", "m2", "n1", "m3"]
    assert len(scene.kept) == 2


def test_a_message_whose_lease_ends_as_it_is_handed_over_takes_no_credit() -> None:
    scene = Scene(limit=2)
    scene.ended = 1
    scene.receive(*messages("m1", "m2"))
    assert (scene.intake.free, scene.intake.room) == (1, 1)


def test_threads_that_take_answers_and_look_at_once_hand_each_message_over_once_in_order() -> None:
    scene, begins = Scene(), threading.Barrier(4)

    def take(number: int) -> None:
        begins.wait(PATIENCE)
        for start in range(0, 50, 10):
            scene.receive(*(message(f"{number} {start + each}") for each in range(10)))
            scene.intake.look()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(set(scene.taken)), len(scene.taken)) == (200, 200)
    for number in range(4):
        own = [int(name.split()[1]) for name in scene.taken if name.startswith(f"{number} ")]
        assert own == sorted(own)
