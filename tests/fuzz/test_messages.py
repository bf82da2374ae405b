"""Messages of any shape are received. The good ones run, and no lease is orphaned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.desk import FakeDesk
from tests.fuzz.mail import GOOD, batch_of, messages, missing, wrong
from tests.fuzz.shapes import FUZZ, json_values, optional


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    # The tests log thousands of expected tracebacks.
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


fates = st.lists(
    st.sampled_from(("ack", "keep", "requeue", "reject", "fail")), min_size=1, max_size=5
)


class Taker:
    """Does with each message what its fate says."""

    def __init__(self, fates: list[str]) -> None:
        self.fates = fates
        self.seen: list[str] = []
        self.kept: set[str] = set()

    def __call__(self, message: Any) -> None:
        fate = self.fates[len(self.seen) % len(self.fates)]
        self.seen.append(message.delivery_tag)
        if fate == "ack":
            message.ack()
        elif fate == "requeue":
            message.requeue()
        elif fate == "reject":
            message.reject()
        elif fate == "keep":
            self.kept.add(message.delivery_tag)
        else:
            raise LookupError


def receive(batch: Any, fates: list[str]) -> Taker:
    taker = Taker(fates)
    desk = FakeDesk(taker)
    try:
        desk.answer({"Messages": batch})
        assert desk.held() == taker.kept
        assert desk.slots_taken() == taker.kept
    finally:
        desk.close()
    return taker


parts = st.lists(st.tuples(messages, missing, st.just({})), min_size=1, max_size=5)
odd_parts = st.lists(st.tuples(messages, missing, wrong), min_size=1, max_size=5)


@FUZZ
@given(parts=parts, fates=fates)
@example(parts=[({"Body": "[" * 100_000}, set(), {})], fates=["keep"])
@example(parts=[({"Body": GOOD}, set(), {})], fates=["fail"])
def test_a_message_of_any_shape_does_not_affect_the_others(parts: Any, fates: list[str]) -> None:
    taker = receive(batch_of(parts), fates)
    assert {f"good#{number}" for number in range(len(parts))} <= set(taker.seen)


@FUZZ
@given(parts=odd_parts, fates=fates)
@example(parts=[({"Body": GOOD}, set(), {"ReceiptHandle": ["x"]})], fates=["ack"])
@example(parts=[({"Body": GOOD}, set(), {"ReceiptHandle": 5})], fates=["ack"])
def test_a_message_whose_ids_are_not_text_does_not_affect_the_others(
    parts: Any, fates: list[str]
) -> None:
    taker = receive(batch_of(parts), fates)
    assert {f"good#{number}" for number in range(len(parts))} <= set(taker.seen)


@FUZZ
@given(answer=optional(Messages=json_values | st.lists(messages | json_values)) | json_values)
@example(answer={"Messages": 5})
@example(answer={"Messages": [None]})
def test_an_answer_of_any_shape_is_received(answer: Any) -> None:
    taker = Taker(["keep"])
    desk = FakeDesk(taker)
    try:
        desk.answer(answer)
        assert desk.held() == taker.kept
    finally:
        desk.close()


@FUZZ
@given(parts=odd_parts)
@example(parts=[({}, {"MessageId"}, {})])
def test_messages_that_arrive_after_the_consumer_ended_are_released(parts: Any) -> None:
    taker = Taker(["keep"])
    desk = FakeDesk(taker)
    try:
        desk.consumer.cancel()
        desk.answer({"Messages": batch_of(parts)})
        assert taker.seen == []
        assert desk.held() == set()
        assert desk.keeper.ending >= len(parts)
    finally:
        desk.close()
