"""A keeper continues whatever answers its calls get, and completes its deletes and releases."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError
from hypothesis import example, given
from hypothesis import strategies as st

from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus
from tests.fuzz.keeping import Keeping
from tests.fuzz.shapes import FUZZ, answers, exceptions, json_values

#: Leases that may expire meanwhile, because they are not ours or are not extended.
ENDED = (LeaseStatus.LOST, LeaseStatus.CAPPED, LeaseStatus.REFUSED)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    # The tests log thousands of expected tracebacks.
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@FUZZ
# After this error each entry has its own call, so there are more calls than may run at once.
@example(4, [ParamValidationError(report="x")], set(), set(), 25.0)
@given(
    count=st.integers(1, 12),
    script=st.lists(answers | exceptions, max_size=12),
    done=st.sets(st.integers(0, 11)),
    released=st.sets(st.integers(0, 11)),
    seconds=st.sampled_from((0.5, 25.0, 80.0)),
)
def test_every_delete_and_release_ends_whatever_is_answered(
    count: int, script: list[Any], done: set[int], released: set[int], seconds: float
) -> None:
    keeping = Keeping()
    names = [f"m{number}" for number in range(count)]
    for name in names:
        keeping.receive(name)
    keeping.run(21.0)
    keeping.client.script = list(script)
    for number, name in enumerate(names):
        if number in done:
            keeping.keeper.done(name)
        elif number in released:
            keeping.keeper.release(name)
    keeping.run(seconds)

    # SQS recovers: the keeper repeats deletes within 30 s, and extensions sooner.
    keeping.client.script = []
    keeping.receive("meanwhile")
    keeping.run(40.0)
    finished = {name for number, name in enumerate(names) if number in done}
    assert finished <= keeping.client.deleted
    assert keeping.client.deleted <= finished, "deleted, but its task has not ended"
    assert keeping.keeper.ending == 0
    for name in [*names, "meanwhile"]:
        lease = keeping.keeper.find(name)
        if lease is None:
            assert name != "meanwhile"
            assert name in finished or names.index(name) in released
        else:
            assert lease.goal is Goal.HOLD
            assert lease.status in ENDED or lease.expires_at > keeping.clock()

    for name in [*names, "meanwhile"]:
        keeping.keeper.done(name)
    keeping.run(1.0)
    assert len(keeping.keeper) == keeping.keeper.ending == 0


@FUZZ
@given(attributes=json_values | st.fixed_dictionaries({"ApproximateReceiveCount": json_values}))
def test_a_message_with_attributes_of_any_shape_is_leased(attributes: Any) -> None:
    keeping = Keeping()
    keeping.receive("a", attributes)
    lease = keeping.keeper.find("a")
    assert lease is not None
    assert isinstance(lease.receive_count, int)
