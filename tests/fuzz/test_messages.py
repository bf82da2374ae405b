"""Answers and messages of any shape are received: good ones are handed over, none is orphaned."""

from __future__ import annotations

import base64
import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from celery_sqs_heartbeat.sqs import long_polls
from tests.fuzz.shapes import FUZZ, json_values, optional
from tests.support.waiting import wait_until
from tests.unit.test_reception import STANDARD, UNLIMITED, Scene, consumed, message

#: Each answer has a good message of its own.
NAMES = itertools.count()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogatepass")).decode()


texts = json_values.map(json.dumps) | st.text(max_size=20) | st.just("[" * 100_000)
envelopes = optional(headers=optional(task=json_values, id=json_values), properties=json_values)
bodies = texts | texts.map(encoded) | envelopes.map(json.dumps) | json_values
attributes = optional(
    ApproximateReceiveCount=json_values,
    SentTimestamp=json_values,
    MessageGroupId=json_values,
    SequenceNumber=json_values,
)
ids = optional(MessageId=json_values, ReceiptHandle=json_values) | st.just(
    {"MessageId": "bad", "ReceiptHandle": "bad"}
)
messages = st.builds(
    lambda given, ids: {**given, **ids},
    optional(Body=bodies, Attributes=attributes | json_values, MD5OfBody=json_values),
    ids,
)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    # The tests log thousands of expected errors.
    logging.disable(logging.CRITICAL)
    scene = Scene()
    scene.consume(consumed(STANDARD), limit=UNLIMITED, prefetch=0)
    yield scene
    scene.end()
    logging.disable(logging.NOTSET)


def receive(scene: Scene, answer: Any) -> None:
    """Have an answer received, and the one after it."""
    good = f"good {next(NAMES)}"
    with patch.object(long_polls, "logger") as log:
        for each in (answer, {"Messages": [message(good)]}):
            wait_until(lambda: scene.open)
            scene.end_poll(scene.open[0], each)
        wait_until(lambda: (1, good) in scene.taken)
    # It would log the errors of the poll's thread.
    assert not log.mock_calls
    held = {lease.receipt_handle for lease in scene.keeper.leases()}
    assert held <= {handle for _, handle in scene.taken}
    for handle in held:
        scene.keeper.let_expire(handle)


@FUZZ
@given(bad=st.lists(messages, min_size=1, max_size=5))
@example(bad=[{"ReceiptHandle": "no id"}])
@example(bad=[{"MessageId": "m", "ReceiptHandle": ["x"]}])
def test_a_message_of_any_shape_does_not_affect_the_others(scene: Scene, bad: Any) -> None:
    good = f"good {next(NAMES)}"
    receive(scene, {"Messages": [*bad, message(good)]})
    assert (1, good) in scene.taken


@FUZZ
@given(answer=optional(Messages=json_values | st.lists(json_values)) | json_values)
@example(answer={"Messages": 5})
@example(answer={"Messages": [None]})
def test_an_answer_of_any_shape_is_received(scene: Scene, answer: Any) -> None:
    receive(scene, answer)
