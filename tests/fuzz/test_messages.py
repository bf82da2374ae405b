"""Messages of any shape are received. The good ones run, and no lease is orphaned."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.desk import FakeDesk
from tests.fuzz.mail import GOOD, batch_of, messages, missing, wrong
from tests.fuzz.shapes import FUZZ, json_values, optional

#: Each batch has ids of its own.
BATCHES = itertools.count()


@pytest.fixture(scope="module")
def desk() -> Iterator[FakeDesk]:
    # The tests log thousands of expected tracebacks.
    logging.disable(logging.CRITICAL)
    desk = FakeDesk()
    desk.consume()
    yield desk
    desk.close()
    logging.disable(logging.NOTSET)


fates = st.lists(
    st.sampled_from(("ack", "keep", "requeue", "reject", "fail")), min_size=1, max_size=5
)
parts = st.lists(st.tuples(messages, missing, wrong), min_size=1, max_size=5)


class Taker:
    """Does with each message what its fate says."""

    def __init__(self, fates: list[str]) -> None:
        self.fates = fates
        self.seen: list[str] = []
        self.kept: dict[str, Any] = {}

    def __call__(self, message: Any) -> None:
        fate = self.fates[len(self.seen) % len(self.fates)]
        self.seen.append(message.delivery_tag)
        if fate == "keep":
            self.kept[message.delivery_tag] = message
        elif fate == "fail":
            raise LookupError
        else:
            getattr(message, fate)()


def receive(desk: FakeDesk, answer: Any, fates: list[str]) -> list[str]:
    """Have an answer received. Return the messages that were delivered, the good ones or others."""
    desk.take = taker = Taker(fates)
    desk.answer(answer)
    assert desk.held() == desk.slots_taken() == taker.kept.keys()
    for message in taker.kept.values():
        message.ack()
    return taker.seen


@FUZZ
@given(parts=parts, fates=fates)
@example(parts=[({"Body": "[" * 100_000}, set(), {})], fates=["keep"])
@example(parts=[({"Body": GOOD}, set(), {})], fates=["fail"])
@example(parts=[({"Body": GOOD}, set(), {"ReceiptHandle": ["x"]})], fates=["ack"])
def test_a_message_of_any_shape_does_not_affect_the_others(
    desk: FakeDesk, parts: Any, fates: list[str]
) -> None:
    batch = next(BATCHES)
    seen = receive(desk, {"Messages": batch_of(parts, batch)}, fates)
    assert {f"good#{batch}-{number}" for number in range(len(parts))} <= set(seen)


@FUZZ
@given(answer=optional(Messages=json_values | st.lists(json_values)) | json_values)
@example(answer={"Messages": 5})
@example(answer={"Messages": [None]})
def test_an_answer_of_any_shape_is_received(desk: FakeDesk, answer: Any) -> None:
    receive(desk, answer, ["keep"])
