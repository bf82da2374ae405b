"""Messages that wait for another one of their group before they are handed over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived, GroupWaitlist
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs

URL = "https://sqs/1/orders.fifo"
QUEUE = "orders.fifo"
TERMS = replace(LeaseTerms.of(30), in_order=True)
CONSUMED = ConsumedQueue(name=QUEUE, url=URL, lease_url=URL, terms=TERMS)


class Scene:
    """A keeper, the waiting messages, and those that were handed over."""

    def __init__(self, limit: int = 90) -> None:
        self.clock = FakeClock(1000.0)
        self.keeper = ThreadKeeper(SimulatedSqs(self.clock), clock=self.clock)
        self.poll_left = 0.0
        self.groups = GroupWaitlist(
            keeper=self.keeper, limit=limit, poll_left=lambda lease: self.poll_left
        )
        self.taken: list[str] = []

    def receive(self, *names: str, group: str = "g", terms: LeaseTerms = TERMS) -> None:
        """Receive messages in one answer. Each name ends with the message's number."""
        arrived = [self.lease_on(name, group=group, terms=terms) for name in names]
        for each in self.groups.hold_back(arrived, take=self._take):
            self._take(each)

    def lease_on(self, name: str, *, group: str = "g", terms: LeaseTerms = TERMS) -> Arrived:
        attributes = {"MessageGroupId": group, "SequenceNumber": name[1:]}
        message = {"MessageId": name, "ReceiptHandle": name, "Attributes": attributes}
        self.keeper.receive(URL, message, terms=terms)
        return Arrived(queue=CONSUMED, message=message, lease=self.lease(name))

    def _take(self, arrived: Arrived) -> None:
        self.taken.append(arrived.handle)

    def lease(self, name: str) -> Lease:
        lease = self.keeper.find(name)
        assert lease is not None
        return lease

    def confirm_delete(self, name: str) -> None:
        lease = self.lease(name)
        lease.is_deleted = True
        self.keeper.let_expire(name)

    def causes(self) -> dict[str, str]:
        """Return why each message is being released."""
        leases = self.keeper.leases()
        return {each.message_id: each.cause for each in leases if each.goal is Goal.RELEASE}


def test_the_first_of_each_group_is_handed_over_and_the_others_wait() -> None:
    scene = Scene()
    scene.receive("m1", "m2", "m3")
    scene.receive("n1", "n2", group="h")
    assert scene.taken == ["m1", "n1"]
    assert len(scene.groups) == 3


def test_the_next_is_handed_over_once_the_delete_is_confirmed() -> None:
    scene = Scene()
    scene.receive("m1", "m2", "m3")
    scene.keeper.done("m1")
    scene.groups.take_due()
    assert scene.taken == ["m1"]
    scene.confirm_delete("m1")
    scene.groups.take_due()
    assert scene.taken == ["m1", "m2"]
    scene.groups.take_due()
    assert scene.taken == ["m1", "m2"]


def test_messages_without_a_place_in_a_group_do_not_wait() -> None:
    scene = Scene()
    scene.receive("m1", "m2", terms=LeaseTerms.of(30))
    assert scene.taken == ["m1", "m2"]


def test_messages_released_with_the_first_are_not_handed_over() -> None:
    scene = Scene()
    scene.receive("m1", "m2")
    scene.keeper.release("m1", cause="failed")
    scene.groups.take_due()
    assert scene.taken == ["m1"]
    assert len(scene.groups) == 0
    assert scene.causes() == {"m1": "failed", "m2": GROUP_STOPPED}


def test_a_message_without_room_is_released_with_all_behind_it() -> None:
    scene = Scene(limit=1)
    scene.receive("m1", "m2", "m3", "m4")
    assert len(scene.groups) == 1
    assert scene.causes() == {"m3": NO_ROOM, "m4": GROUP_STOPPED}


def test_the_single_message_that_a_receive_may_always_return_has_room() -> None:
    # SQS has done the delete, or it would not deliver the next message: that waits only briefly.
    scene = Scene(limit=0)
    scene.receive("m1")
    scene.keeper.done("m1")
    scene.receive("m2")
    assert scene.causes() == {}
    scene.confirm_delete("m1")
    scene.groups.take_due()
    assert scene.taken == ["m1", "m2"]


def test_beyond_the_room_one_message_of_each_group_may_wait() -> None:
    scene = Scene(limit=1)
    for group in "ab":
        scene.receive(f"{group}1", group=group)
        scene.keeper.done(f"{group}1")
        scene.receive(f"{group}2", f"{group}3", group=group)
    assert len(scene.groups) == 2
    assert scene.causes() == {"a3": NO_ROOM, "b3": NO_ROOM}
    # It arrives if the lease of the waiting message was lost and the message has run elsewhere.
    scene.receive("b4", group="b")
    assert len(scene.groups) == 2
    assert scene.causes()["b4"] == NO_ROOM


@pytest.mark.parametrize(("limit", "wait", "wanted"), [(0, 0, 1), (3, 0, 4), (3, 2, 2), (3, 3, 1)])
def test_a_receive_may_return_messages_for_the_room_and_one_to_hand_over(
    limit: int, wait: int, wanted: int
) -> None:
    scene = Scene(limit)
    scene.receive(*(f"m{number}" for number in range(1, wait + 2)))
    assert scene.groups.most_wanted == wanted


def test_a_slot_is_kept_for_the_next_of_a_group() -> None:
    scene = Scene()
    scene.receive("m1", "m2")
    assert scene.groups.next_up == 0
    scene.keeper.done("m1")
    assert scene.groups.next_up == 1
    scene.confirm_delete("m1")
    scene.groups.take_due()
    assert scene.groups.next_up == 0


def test_a_waiting_message_whose_lease_has_expired_is_released() -> None:
    scene = Scene()
    scene.receive("m1", "m2")
    scene.clock.advance(31)
    scene.confirm_delete("m1")
    scene.groups.take_due()
    assert scene.taken == ["m1"]
    assert len(scene.groups) == 0
    assert scene.keeper.find("m2") is None


def test_a_waiting_message_that_was_extended_after_its_expiry_is_released() -> None:
    scene = Scene()
    scene.receive("m1", "m2")
    scene.lease("m2").is_exclusive = False
    scene.confirm_delete("m1")
    scene.groups.take_due()
    assert scene.taken == ["m1"]
    assert scene.keeper.find("m2") is None


def test_a_message_that_has_waited_for_half_of_its_time_is_released() -> None:
    scene = Scene()
    scene.receive("m1", "m2", terms=replace(TERMS, max_lease=50.0))
    scene.clock.advance(26)
    scene.confirm_delete("m1")
    scene.groups.take_due()
    assert scene.taken == ["m1"]
    assert scene.causes() == {"m2": WAITED_LONG}


def test_leaving_a_queue_releases_its_messages_from_the_last_and_no_others() -> None:
    scene = Scene()
    scene.receive("m1", "m2", "m3")
    scene.groups.leave("consumer closed", "other.fifo")
    assert len(scene.groups) == 2
    scene.groups.leave("consumer closed", QUEUE)
    assert len(scene.groups) == 0
    assert scene.causes() == {"m2": "consumer closed", "m3": "consumer closed"}
    assert scene.lease("m1").goal is Goal.HOLD


def test_a_message_that_is_released_is_hidden_from_our_own_polls() -> None:
    scene = Scene(limit=1)
    scene.poll_left = 7.0
    scene.receive("m1", "m2", "m3")
    scene.groups.leave("shutdown", QUEUE)
    assert scene.causes() == {"m2": "shutdown", "m3": NO_ROOM}
    assert [scene.lease(name).release_delay for name in ("m2", "m3")] == [7.0, 7.0]


def test_a_message_whose_lease_has_ended_neither_waits_nor_is_handed_over() -> None:
    scene = Scene()
    arrived = scene.lease_on("m1")
    scene.keeper.let_expire("m1")
    assert scene.keeper.find("m1") is None
    assert scene.groups.hold_back([arrived], take=lambda _: None) == []
    assert len(scene.groups) == 0
