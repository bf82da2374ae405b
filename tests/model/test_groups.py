"""A keeper keeps a group's order, also through what its worker hears late and through its death."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, LeaseTerms
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.support.linked import Linked, message_of

URL = "https://q/orders.fifo"
TERMS = replace(LeaseTerms(visibility_timeout=30, threshold=10), in_order=True)


class Group(Linked):
    """A worker whose keeper receives one group. Each name ends with the message's number."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)

    def get(self, *names: str, count: int = 1) -> list[ReceivedAs]:
        """Receive messages in one answer. The worker gets those that wait for no other."""
        receipts = [self._get(name, count) for name in names]
        elsewhere = self.elsewhere
        while elsewhere.waiting and not self.waits(elsewhere.waiting[0].handle):
            elsewhere.deliver(1)
        elsewhere.keep()
        self.worker.pull()
        return receipts

    def _get(self, name: str, count: int) -> ReceivedAs:
        message = message_of(name, f"{name}-{count}", count)
        message["Attributes"] |= {"MessageGroupId": "g", "SequenceNumber": name[1:]}
        return self.elsewhere.receive(URL, message, TERMS, 30, 0.0)

    def waits(self, handle: str) -> bool:
        return self.elsewhere.keeper.waits_behind(handle)

    def extend_all_but(self, name: str) -> None:
        """Have SQS confirm the extensions of all messages except one."""
        self.elsewhere.keeper.step()
        call, settle = self.elsewhere.calls.out.pop(0)
        settle(
            [Outcome.DONE if e.lease.message_id != name else Outcome.FAILED for e in call.entries]
        )

    def fail_until(self, time: float) -> None:
        """Have every call fail for a while."""
        while self.clock() < time:
            self.clock.advance(0.5)
            self.elsewhere.keeper.step()
            while self.elsewhere.calls.out:
                self.elsewhere.calls.answer(0, [Outcome.FAILED])

    def released(self) -> list[str]:
        """Have SQS execute all calls. Return the handles of the releases, in their order."""
        handles = []
        self.elsewhere.keeper.step()
        while self.elsewhere.calls.out:
            call = self.elsewhere.calls.answer(0, [Outcome.DONE])
            handles += [e.receipt_handle for e in call.entries if e.action is Action.RELEASE]
            self.elsewhere.keeper.step()
        return handles

    def goals(self, *handles: str) -> list[Goal]:
        leases = [self.elsewhere.keeper.find(each) for each in handles]
        return [each.goal for each in leases if each is not None]

    def replace_keeper(self, heard: int = 1000) -> None:
        self.die(heard)
        self.start()
        self.elsewhere.take()


@pytest.fixture
def group() -> Group:
    return Group()


def test_behind_a_message_that_was_received_again_after_its_loss_later_ones_wait(
    group: Group,
) -> None:
    group.get("m1")
    group.clock.advance(30.5)
    group.elsewhere.keeper.step()
    assert group.get("m1", count=2) == [ReceivedAs.REDELIVERED]
    group.get("m3")
    assert group.waits("m3-1")
    group.deliver()
    group.replace_keeper()
    group.get("m4")
    assert group.waits("m4-1")


def test_messages_of_a_lost_receive_are_released_although_the_first_was_received_again(
    group: Group,
) -> None:
    group.get("m1", "m2")
    group.deliver()
    group.clock.advance(21)
    group.extend_all_but("m1")
    group.fail_until(1031)
    group.get("m1", "m3", count=2)
    assert group.goals("m1-2", "m2-1", "m3-2") == [Goal.HOLD, Goal.RELEASE, Goal.HOLD]
    assert group.waits("m3-2")


def test_after_a_keepers_death_waiting_messages_are_released_and_the_first_runs_on(
    group: Group,
) -> None:
    # Until it has ended, SQS delivers none of its group, whatever the order of the releases.
    group.get("m1", "m2", "m3", "m4")
    group.hear()
    group.replace_keeper()
    assert group.goals("m1-1", "m2-1", "m3-1", "m4-1") == [Goal.HOLD, *[Goal.RELEASE] * 3]
    assert sorted(group.released()) == ["m2-1", "m3-1", "m4-1"]
    group.deliver()
    assert group.goals("m1-1") == [Goal.HOLD]
    assert (len(group.worker), group.worker.ending) == (1, 0)


def test_after_a_keepers_death_the_first_of_those_that_waited_is_released_last(
    group: Group,
) -> None:
    group.get("m1", "m2", "m3", "m4")
    group.worker.done("m1-1")
    group.deliver()
    group.released()
    assert not group.waits("m2-1")
    group.replace_keeper()
    *others, first = group.released()
    assert (sorted(others), first) == (["m3-1", "m4-1"], "m2-1")
    group.deliver()
    assert len(list(group.holdings._by_name.values())) == 0


def test_after_a_keepers_death_a_later_message_waits_for_the_one_that_runs(group: Group) -> None:
    group.get("m1")
    group.replace_keeper(heard=0)
    group.get("m2")
    assert group.waits("m2-1")
    group.worker.done("m1-1")
    group.deliver()
    assert group.waits("m2-1")
    group.released()
    assert not group.waits("m2-1")


def test_a_failed_message_stops_those_that_wait_behind_it_after_its_keepers_death(
    group: Group,
) -> None:
    group.get("m1")
    group.replace_keeper(heard=0)
    group.get("m2", "m3")
    group.worker.release("m1-1", 0)
    group.deliver()
    assert group.released() == ["m3-1", "m2-1", "m1-1"]


def test_a_failure_that_a_dying_keeper_does_not_hear_of_stops_the_group_in_the_next(
    group: Group,
) -> None:
    group.get("m1", "m2", "m3")
    group.hear()
    group.worker.release("m1-1", 0)
    group.replace_keeper()
    *others, first = group.released()
    assert (sorted(others), first) == (["m2-1", "m3-1"], "m1-1")


@pytest.mark.parametrize("delay", [math.inf, math.nan])
def test_a_delay_that_is_not_a_finite_number_releases_nothing(group: Group, delay: float) -> None:
    group.get("m1", "m2")
    group.deliver()
    for keeper in (group.worker, group.elsewhere.keeper):
        with pytest.raises((OverflowError, ValueError)):
            keeper.release("m1-1", delay)
        assert group.worker.ending == group.elsewhere.keeper.ending == 0
    group.worker.release("m1-1", 0)
    group.deliver()
    assert group.goals("m1-1", "m2-1") == [Goal.RELEASE, Goal.RELEASE]
    waiting = group.elsewhere.keeper.find("m2-1")
    assert waiting is not None
    assert waiting.cause == GROUP_STOPPED
    assert group.elsewhere.keeper.ending == 2


@pytest.mark.parametrize("is_known", [True, False])
def test_a_lost_lease_stops_nothing_when_the_keeper_is_replaced(
    group: Group, *, is_known: bool
) -> None:
    # Another worker has received the first message, and deleted it.
    group.get("m1")
    group.clock.advance(31)
    group.elsewhere.keeper.step()
    group.deliver()
    if is_known:
        group.elsewhere.calls.answer(0, [Outcome.LOST])
        group.deliver()
    group.get("m2")
    assert not group.waits("m2-1")
    group.replace_keeper()
    group.worker.release("m1-1", 0)
    group.deliver()
    assert "m2-1" not in group.released()
    assert group.goals("m2-1") == [Goal.HOLD]
