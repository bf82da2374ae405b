"""Answers and errors of any shape become outcomes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.sqs.adapter import of_error, of_exception, read_answer, read_attributes
from tests.fuzz.shapes import FUZZ, answers, errors, exceptions, json_values, optional, scalars


@FUZZ
@given(answer=answers, count=st.integers(1, 10))
@example(answer={"Failed": 5}, count=1)
@example(answer={"Successful": [{"Id": "9" * 5000}]}, count=1)
def test_every_entry_gets_an_outcome(answer: Any, count: int) -> None:
    outcomes = read_answer(answer, count)
    assert len(outcomes) == count
    assert all(isinstance(outcome, Outcome) for outcome in outcomes)


@FUZZ
@given(answer=answers, count=st.integers(1, 10))
def test_an_entry_counts_as_done_only_if_the_answer_confirms_it(answer: Any, count: int) -> None:
    outcomes = read_answer(answer, count)
    text = json.dumps(answer) if outcomes.count(Outcome.DONE) else ""
    assert Outcome.DONE not in outcomes or "Successful" in text


@FUZZ
@given(error=errors)
def test_an_error_of_any_shape_has_an_outcome(error: dict[str, Any]) -> None:
    assert of_error(error) is not Outcome.DONE


@FUZZ
@given(error=exceptions)
def test_an_exception_of_any_shape_has_an_outcome(error: Exception) -> None:
    assert of_exception(error, "ChangeMessageVisibility") is not Outcome.DONE


numbers = st.integers(-5, 50_000).map(str) | scalars.map(str) | json_values
policies = optional(maxReceiveCount=numbers).map(json.dumps) | json_values.map(json.dumps)


@FUZZ
@given(attributes=optional(VisibilityTimeout=numbers, RedrivePolicy=policies | json_values))
@example(attributes={"RedrivePolicy": '{"maxReceiveCount": Infinity}'})
@example(attributes={"VisibilityTimeout": float("inf")})
@example(attributes={"RedrivePolicy": "[" * 100_000})
def test_attributes_of_any_shape_are_read(attributes: dict[str, Any]) -> None:
    read = read_attributes(attributes)
    assert isinstance(read.visibility_timeout, int)
    assert read.max_receive_count is None or isinstance(read.max_receive_count, int)
