"""A worker and its keeper agree on a group's order, even if they hear late from each other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.model.linked import Linked, message_of

URL = "https://q/orders.fifo"
TERMS = replace(LeaseTerms(visibility_timeout=30, threshold=10), in_order=True)


class Group(Linked):
    """A worker that receives messages of one group. Each name ends with the message's number."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)

    def get(self, *names: str, count: int = 1) -> list[ReceivedAs]:
        """Receive messages in one answer."""
        return [self._get(name, count) for name in names]

    def _get(self, name: str, count: int) -> ReceivedAs:
        message = message_of(name, f"{name}-{count}", count)
        message["Attributes"] |= {"MessageGroupId": "g", "SequenceNumber": name[1:]}
        return self.receive(URL, message, TERMS, 30, 0.0)

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

    def states(self, *handles: str) -> list[Goal]:
        leases = [self.worker.find(each) for each in handles]
        return [each.goal for each in leases if each is not None]


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_loss_that_is_reported_late_does_not_end_a_later_receive(
    group: Group,
) -> None:
    group.get("m1")
    group.deliver()
    group.clock.advance(30.5)
    group.elsewhere.keeper.step()
    assert group.get("m1", count=2) == [ReceivedAs.REDELIVERED]
    group.hear()
    group.get("m3")
    assert group.worker.waits_behind("m3-1")
    group.deliver()
    assert group.worker.waits_behind("m3-1")
    assert group.elsewhere.keeper.waits_behind("m3-1")


def test_two_redelivered_messages_wait_for_each_other_despite_late_reports_of_their_loss(
    group: Group,
) -> None:
    group.get("m1", "m2")
    group.deliver()
    group.clock.advance(21)
    group.extend_all_but("m2")
    group.fail_until(1052)
    group.get("m1", "m2", count=2)
    group.hear()
    assert group.worker.waits_behind("m2-2")
    assert group.states("m1-2", "m2-2") == [Goal.HOLD, Goal.HOLD]


def test_messages_of_a_lost_receive_are_released_although_the_first_was_received_again(
    group: Group,
) -> None:
    # The keeper releases it, and may have done that by the time it confirms the first's delete.
    group.get("m1", "m2")
    group.deliver()
    group.clock.advance(21)
    group.extend_all_but("m1")
    group.fail_until(1031)
    group.get("m1", "m3", count=2)
    group.hear()
    assert group.states("m1-2", "m2-1", "m3-2") == [Goal.HOLD, Goal.RELEASE, Goal.HOLD]
    group.deliver()
    assert group.worker.waits_behind("m3-2")
    assert group.elsewhere.keeper.waits_behind("m3-2")


@pytest.mark.parametrize("delay", [math.inf, math.nan])
def test_a_delay_that_is_not_a_finite_number_releases_nothing(group: Group, delay: float) -> None:
    group.get("m1", "m2")
    group.deliver()
    for keeper in (group.worker, group.elsewhere.keeper):
        with pytest.raises((OverflowError, ValueError)):
            keeper.release("m1-1", delay)
        assert group.worker.ending == group.elsewhere.keeper.ending == 0
    group.worker.release("m1-1", 0)
    assert group.states("m1-1", "m2-1") == [Goal.RELEASE, Goal.RELEASE]
    group.deliver()
    assert group.elsewhere.keeper.ending == 2
