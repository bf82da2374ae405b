"""Release policies: how they are written, and the delays that they return."""

from __future__ import annotations

import math

import pytest

from celery_sqs_heartbeat.settings.release_policies import (
    EXAMPLES,
    BadPolicy,
    ReleasePolicy,
    parse_policy,
)


def delays(text: str, *counts: int, draw: float = 1.0) -> list[float]:
    policy = parse_policy(text)
    assert isinstance(policy, ReleasePolicy)
    return [policy.delay(count, draw) for count in counts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("backoff", [0, 2, 4, 300]),
        ("immediate", [0, 0, 0, 0]),
        ("fixed(30)", [30, 30, 30, 30]),
        ("fixed(0)", [0, 0, 0, 0]),
        ("fixed(seconds=2.5)", [2.5, 2.5, 2.5, 2.5]),
        ("linear(10)", [10, 20, 30, 1000]),
        ("linear(10, max=25)", [10, 20, 25, 25]),
        ("linear(10, 25)", [10, 20, 25, 25]),
        ("linear(step=10, max=10)", [10, 10, 10, 10]),
        ("exponential(jitter=False)", [2, 4, 8, 900]),
        ("exponential(base=5, max=15, jitter=False)", [5, 10, 15, 15]),
        ("exponential(0.5, 43200, False)", [0.5, 1, 2, 43_200]),
        (" exponential ( base = 1e1 , max = 20. , jitter = False ) ", [10, 20, 20, 20]),
    ],
)
def test_the_delay_of_a_policy_after_1_2_3_and_100_receives(
    text: str, expected: list[float]
) -> None:
    assert delays(text, 1, 2, 3, 100) == expected


@pytest.mark.parametrize(("draw", "expected"), [(0.0, [4, 8]), (0.5, [6, 12]), (1.0, [8, 16])])
def test_jitter_uses_the_upper_half_and_is_on_by_default(
    draw: float, expected: list[float]
) -> None:
    for text in ("exponential(8)", "exponential(base=8, jitter=True)"):
        assert delays(text, 1, 2, draw=draw) == expected
    assert delays("exponential(8, jitter=False)", 1, 2, draw=draw) == [8, 16]
    assert delays("backoff", 1, 4, 5, draw=draw) == [0, *expected]


def test_a_receive_count_of_any_size_overflows_nothing() -> None:
    huge = 10**400
    assert delays("exponential(jitter=False)", 0, -5, huge) == [2, 2, 900]
    assert delays("linear(1, max=7)", 0, 10**300) == [1, 7]
    assert delays("backoff", 0, -5, huge) == [0, 0, 300]
    assert math.isfinite(delays("exponential(43200, 43200, False)", 1_000_000)[0])


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_a_policy(example: str) -> None:
    parse_policy(example)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a release policy; write one of 'backoff', 'immediate', 'keep', 'fixed(30)', "),
        ("later", "or 'module:function' for your own"),
        ("exponental(base=2)", "did you mean 'exponential(base=2, max=900, jitter=True)'?"),
        ("Keep", "did you mean 'keep'?"),
        ("imediate", "did you mean 'immediate'?"),
        ("5", "is text: write the number without quotes, or 'fixed(5)'"),
        ("proj.delays.backoff", "write a function as 'proj.delays:backoff'"),
        ("fixed", "must be written as 'fixed(30)'"),
        ("linear", "must be written as 'linear(10, max=600)'"),
        ("exponential", "must be written as 'exponential(base=2, max=900, jitter=True)'"),
        ("keep()", "must be written as 'keep'"),
        ("immediate()", "must be written as 'immediate'"),
        ("keep(30)", "too many positional arguments: write it as 'keep'"),
        ("fixed()", "missing a required argument: 'seconds': write it as 'fixed(30)'"),
        ("fixed(1, 2)", "too many positional arguments"),
        ("fixed(second=1)", "missing a required argument: 'seconds'"),
        ("linear(10, maximum=5)", "got an unexpected keyword argument 'maximum'"),
        ("linear(10, max=5)", "max=5 must be at least the first delay, 10"),
        ("exponential(1000)", "max=900 must be at least the first delay, 1000"),
        ("fixed(-1)", "seconds=-1 must be 0 to 43200 seconds"),
        ("fixed(43201)", "seconds=43201 must be 0 to 43200 seconds"),
        ("fixed(1e999)", "seconds=inf must be 0 to 43200 seconds"),
        ("fixed(" + "9" * 5_000 + ")", "seconds=inf must be 0 to 43200 seconds"),
        ("linear(0)", "step=0 must be above 0"),
        ("exponential(base=0)", "base=0 must be above 0"),
        ("exponential(max=0)", "max=0 must be above 0"),
        ("fixed(True)", "must be a number of seconds, not bool"),
        ("exponential(jitter=1)", "jitter must be True or False"),
        ("exponential(jitter=true)", "'jitter=true' is not a number"),
        ("fixed(nan)", "'nan' is not a number"),
        ("fixed(30 s)", "'30 s' is not a number"),
        ("fixed(30,)", "'' is not a number"),
        ("fixed(2*3)", "'2*3' is not a number"),
        ("fixed(__import__('os').getpid())", "is not a release policy"),
        ("linear(max=5, 10)", "'10' has no name, but follows a named argument"),
        ("linear(step=5, step=10)", "step is given twice"),
        ("fixed(30) or keep", "is not a release policy"),
        ("fixed(30", "is not a release policy"),
        ("\u0664", "is not a release policy"),
    ],
)
def test_a_value_that_is_not_a_policy_is_refused_with_the_way_out(text: str, said: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        parse_policy(text)
    assert said in str(caught.value)
