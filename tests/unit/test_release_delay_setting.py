"""The setting `release_delay` in each of its forms, for all queues, one queue and one task."""

from __future__ import annotations

import functools
import pickle
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.policy import cut_release_delay
from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.settings import Settings, read_settings
from celery_sqs_heartbeat.settings.release_delay import (
    ExponentialDelay,
    Failure,
    QueueInfo,
    UnusableDelay,
    backoff,
    choose_delay,
)
from tests.support.leases import lease_of

QUEUE = QueueInfo(name="q", url="https://q", visibility_timeout=30, max_receive_count=5)


def after(receive_count: int = 1, **known: Any) -> Failure:
    return Failure(queue=QUEUE, receive_count=receive_count, **known)


def read(setting: Any) -> Settings:
    return read_settings({"sqs_heartbeat_release_delay": setting}.get)


def chosen(setting: Any, failure: Failure) -> Any:
    return choose_delay(read(setting).for_queue("q").release_delay, failure)


def faults(setting: Any) -> list[str]:
    """Return the setting's faults for all queues, for one queue and for a task: one fault each."""
    found = []
    conf: dict[str, Any]
    for conf, tasks in (
        ({"sqs_heartbeat_release_delay": setting}, {}),
        ({"sqs_heartbeat_queues": {"q": {"release_delay": setting}}}, {}),
        ({}, {"t": {"release_delay": setting}}),
    ):
        with pytest.raises(ConfigurationError) as caught:
            read_settings(conf.get, tasks=tasks)
        found += caught.value.faults
    assert len(found) == 3
    return found


def _seconds_or_none(*, exception: Any, receive_count: int, **_: Any) -> float | None:
    return None if exception is KeyError else receive_count * 10


@pytest.mark.parametrize(
    ("setting", "failure", "expected"),
    [
        (None, after(), 0),
        (0, after(9), 0),
        (7, after(5), 7),
        ([0, 10, 60], after(1), 0),
        ([0, 10, 60], after(3), 60),
        ([0, 10, 60], after(9), 60),
        ((0, 10), after(10**400), 10),
        (lambda receive_count, **_: receive_count * 5, after(3), 15),
        (lambda **_: 0, after(3), 0),
        ("immediate", after(3), 0),
        ("backoff", after(1), 0),
        ("keep", after(3), None),
        (ExponentialDelay(jitter=False), after(1), 2),
        (ExponentialDelay(jitter=False), after(3), 8),
        (ExponentialDelay(jitter=False), after(10**400), 900),
        (ExponentialDelay(5, 15, jitter=False), after(2), 10),
        (ExponentialDelay(5, 15, jitter=False), after(3), 15),
        (ExponentialDelay(43_200, 43_200, jitter=False), after(10**6), 43_200),
        (_seconds_or_none, after(3), 30),
        (_seconds_or_none, after(3, exception=KeyError), None),
        (lambda **known: known["message_age"], after(message_age=2.5), 2.5),
        (lambda **known: known["message_age"], after(), None),
        (lambda **known: known["queue"].max_receive_count, after(), 5),
    ],
)
def test_release_delay(setting: Any, failure: Failure, expected: Any) -> None:
    assert chosen(setting, failure) == expected


def test_a_tasks_policy_overrides_its_queues_which_overrides_the_general_one() -> None:
    settings = read_settings(
        {
            "sqs_heartbeat_release_delay": 1,
            "sqs_heartbeat_queues": {"slow": {"release_delay": 2}},
        }.get,
        tasks={"t": {"release_delay": "keep"}},
    )
    assert choose_delay(settings.for_task("q", "other").release_delay, after()) == 1
    assert choose_delay(settings.for_task("slow", "other").release_delay, after()) == 2
    assert choose_delay(settings.for_task("slow", "t").release_delay, after()) is None


@pytest.mark.parametrize("draw", [0.5, 0.75, 1.0])
def test_jitter_uses_the_upper_half_and_is_on_by_default(
    monkeypatch: pytest.MonkeyPatch, draw: float
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: draw)
    assert [ExponentialDelay(8)(count) for count in (1, 2)] == [8 * draw, 16 * draw]
    assert ExponentialDelay(8, jitter=False)(2) == 16
    assert [backoff(count) for count in (-5, 0, 1, 2, 4, 5, 10**400)] == [
        *(0, 0, 0, 2 * draw, 8 * draw, 16 * draw, 300 * draw)
    ]


def test_jitter_draws_from_the_upper_half() -> None:
    drawn = [ExponentialDelay(8)(1) for _ in range(99)]
    assert all(4 <= each <= 8 for each in drawn)
    assert len(set(drawn)) > 1


@pytest.mark.parametrize(
    ("first", "longest"),
    [(0, 900), (-1, 900), (1000, 900), (2, 43_201), (float("nan"), 900), ("2", 900), (True, 900)],
)
def test_an_exponential_delay_of_other_numbers_is_refused_by_name(first: Any, longest: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ExponentialDelay(first, longest)
    (fault,) = caught.value.faults
    assert f"first={first!r}, longest={longest!r}" in fault
    assert "first must be above 0, and longest from first to 43200 seconds" in fault


def test_an_exponential_delay_can_be_given_to_a_spawned_process() -> None:
    delay = ExponentialDelay(first=3)
    assert pickle.loads(pickle.dumps(delay)) == delay


@pytest.mark.parametrize("answer", ["soon", True, float("nan")])
def test_a_function_must_return_a_number_or_none(answer: Any) -> None:
    with pytest.raises(UnusableDelay, match="must be a number of seconds, or None"):
        chosen(lambda **_: answer, after())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(-1, 0), (43_201, 43_200), (10**400, 43_200), (float("inf"), 43_200), (1.5, 1.5)],
)
def test_the_result_of_a_function_is_limited_to_what_sqs_accepts(
    answer: float, expected: float
) -> None:
    assert chosen(lambda **_: answer, after()) == expected


numbers = st.integers() | st.floats(allow_nan=False) | st.sampled_from((0, 43_200, 10**400))
counts = st.integers(-1, 2**70)
small = st.floats(0.01, 43_200)
policies = (
    st.sampled_from(("backoff", "immediate", "keep"))
    | st.builds(lambda first: ExponentialDelay(first, 43_200), small)
    | st.builds(lambda answer: lambda **known: answer, numbers)
    | st.lists(st.floats(0, 43_200), min_size=1, max_size=3)
    | st.floats(0, 43_200)
)


# A busy machine may take long for one of them.
@settings(deadline=None)
@given(setting=policies, count=counts, held_for=st.floats(0, 50_000))
def test_any_policy_returns_seconds_that_sqs_accepts_at_that_moment(
    setting: Any, count: int, held_for: float
) -> None:
    rules = read(setting).rules
    delay = choose_delay(rules.release_delay, after(count))
    if delay is None:
        return
    assert 0 <= delay <= SQS.longest_timeout
    sent = cut_release_delay(lease_of("h"), delay, held_for)
    assert 0 <= sent <= max(0, SQS.longest_timeout - held_for)


async def _later(**_: Any) -> int:
    return 1


def _yielding(**_: Any) -> Iterator[int]:
    yield 1


class _Doubled:
    def __call__(self, receive_count: int, **_: Any) -> int:
        return 2 * receive_count


_PLAIN = "must be a plain function that returns seconds"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: 3, "got an unexpected keyword argument 'exception'"),
        (lambda receive_count: 3, "got an unexpected keyword argument 'exception'"),
        (lambda count, **_: 3, "missing a required argument: 'count'"),
        (lambda *, exception, receive_count: 3, "got an unexpected keyword argument 'message_age'"),
        (lambda *, queue, message_age, task, **_: 3, "missing a required argument: 'task'"),
        (lambda: 3, "`def backoff(*, receive_count, **_)`"),
        (_later, _PLAIN),
        (functools.partial(_later), _PLAIN),
        (_yielding, _PLAIN),
        (_Doubled, _PLAIN),
        (time.time, "must be a function of exception, receive_count, message_age, queue"),
        (max, "must be a function of exception, receive_count, message_age, queue"),
    ],
)
def test_a_function_that_can_not_be_called_is_one_fault(function: Any, said: str) -> None:
    for fault in faults(function):
        assert f"{function!r}: " in fault
        assert said in fault


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (functools.partial(lambda base, receive_count, **_: base * receive_count, 2), 4),
        (_Doubled(), 4),
        (lambda receive_count=7, **_: receive_count, 2),
        (lambda receive_count, **known: len(known), 3),
        (lambda receive_count, exception=None, **_: 1 if exception is KeyError else 0, 1),
    ],
)
def test_anything_that_can_be_called_with_the_facts_is_a_function(
    function: Any, expected: float
) -> None:
    assert read(function).rules.release_delay is function
    assert chosen(function, after(2, exception=KeyError)) == expected


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module with functions for the setting."""
    (tmp_path / "user_delays.py").write_text(
        "def backoff(*, receive_count, **_):\n    return receive_count * 3\n"
        "def wrong(one, two):\n    return 1\n"
        "class Backoff:\n    def __init__(self, **known): pass\n"
        "seconds = 30\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "user_delays"


def test_a_function_can_be_named_by_its_path(module: str) -> None:
    assert chosen(f"{module}:backoff", after(4)) == 12


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("user_delays:backof", "can't be imported (module 'user_delays' has no attribute"),
        ("no_such_module:backoff", "can't be imported (No module named 'no_such_module')"),
        ("no_such_module:backoff", "name a function in a module that the worker can import"),
        ("user_delays:seconds", "names 30, which is not a function"),
        ("user_delays:Backoff", _PLAIN),
        ("user_delays:wrong", "missing a required argument: 'one'"),
        ("user_delays:", "is text: write seconds"),
    ],
)
def test_a_path_that_names_no_such_function_is_one_fault(module: str, path: str, said: str) -> None:
    for fault in faults(path):
        assert f"={path!r}: " in fault
        assert said in fault


_TEXT = "is text: write seconds or a list of them without quotes, one of 'backoff', 'immediate', "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", _TEXT),
        ("5", _TEXT),
        ("[1, 10]", _TEXT),
        ("exponential(base=2)", _TEXT),
        ("proj.delays.backoff", "or a function as 'proj.delays:backoff'"),
        ("Keep", "did you mean 'keep'?"),
        ("imediate", "did you mean 'immediate'?"),
    ],
)
def test_a_text_that_is_no_name_is_one_fault_with_the_way_out(text: str, said: str) -> None:
    for fault in faults(text):
        assert f"={text!r}: " in fault
        assert said in fault


@pytest.mark.parametrize("setting", ["later", b"5", {"a": 1}, object(), [1, "2"]])
def test_a_value_of_any_other_kind_is_one_fault(setting: Any) -> None:
    for fault in faults(setting):
        assert "release_delay" in fault
