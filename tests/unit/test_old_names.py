"""Public names that were replaced still work, for one version, and warn."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat import LeaseKeeper, LeaseTerms
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.observed import QUEUE, Sqs


def test_drop_warns_and_lets_the_lease_expire() -> None:
    keeper = LeaseKeeper(Sqs(), terms=LeaseTerms.of(60), clock=FakeClock())
    keeper.receive(QUEUE, {"MessageId": "m", "ReceiptHandle": "handle"})
    with pytest.warns(DeprecationWarning, match="drop is now let_expire"):
        assert keeper.drop("handle")
    assert keeper.snapshot() == ()


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [("state", "goal", Goal.HOLD), ("standing", "status", LeaseStatus.OWNED)],
)
def test_the_old_fields_of_a_view_warn_and_return_the_new_ones(
    old: str, new: str, value: object
) -> None:
    keeper = LeaseKeeper(Sqs(), terms=LeaseTerms.of(60), clock=FakeClock())
    keeper.receive(QUEUE, {"MessageId": "m", "ReceiptHandle": "handle"})
    (view,) = keeper.snapshot()
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(view, old) is getattr(view, new) is value
