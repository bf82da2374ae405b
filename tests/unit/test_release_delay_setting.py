"""The setting `release_delay` in each of its forms, for all queues, one queue and one task."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.leases.policy import cut_release_delay
from celery_sqs_heartbeat.settings import Settings, read_settings
from celery_sqs_heartbeat.settings.release_delay import UnusableDelay, choose_delay
from celery_sqs_heartbeat.settings.release_policies import Failure, QueueInfo
from tests.support.leases import lease_of

QUEUE = QueueInfo(name="q", url="https://q", visibility_timeout=30, max_receive_count=5)


def after(receive_count: int = 1, **known: Any) -> Failure:
    return Failure(queue=QUEUE, receive_count=receive_count, **known)


def read(setting: Any) -> Settings:
    return read_settings({"sqs_heartbeat_release_delay": setting}.get)


def chosen(setting: Any, failure: Failure) -> Any:
    return read(setting).for_queue("q").delay_after(failure)


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
        (lambda count: count * 5, after(3), 15),
        (lambda count: 0, after(3), 0),
        ("immediate", after(3), 0),
        ("backoff", after(1), 0),
        ("keep", after(3), None),
        ("fixed(30)", after(3), 30),
        ("linear(10, max=600)", after(3), 30),
        ("exponential(jitter=False)", after(3), 8),
        (_seconds_or_none, after(3), 30),
        (_seconds_or_none, after(3, exception=KeyError), None),
        (lambda **known: known["message_age"], after(message_age=2.5), 2.5),
        (lambda **known: known["message_age"], after(), None),
        (lambda **known: known["queue"].max_receive_count, after(), 5),
        (lambda **known: 0, after(), 0),
    ],
)
def test_release_delay(setting: Any, failure: Failure, expected: Any) -> None:
    assert chosen(setting, failure) == expected


def test_a_tasks_policy_overrides_its_queues_which_overrides_the_general_one() -> None:
    settings = read_settings(
        {
            "sqs_heartbeat_release_delay": "fixed(1)",
            "sqs_heartbeat_queues": {"slow": {"release_delay": "fixed(2)"}},
        }.get,
        tasks={"t": {"release_delay": "keep"}},
    )
    assert settings.for_task("q", "other").delay_after(after()) == 1
    assert settings.for_task("slow", "other").delay_after(after()) == 2
    assert settings.for_task("slow", "t").delay_after(after()) is None


def both_forms(answer: Any) -> tuple[Callable[..., Any], ...]:
    """Return two functions that return it: one takes the receive count, one the failure."""
    return (lambda count: answer), (lambda **known: answer)


@pytest.mark.parametrize("answer", ["soon", True, float("nan")])
def test_a_function_must_return_a_number_or_none(answer: Any) -> None:
    for function in both_forms(answer):
        with pytest.raises(UnusableDelay, match="must be a number of seconds, or None"):
            chosen(function, after())


def test_a_function_of_either_form_may_return_none_to_keep_the_message() -> None:
    assert [chosen(function, after()) for function in both_forms(None)] == [None, None]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(-1, 0), (43_201, 43_200), (10**400, 43_200), (float("inf"), 43_200), (1.5, 1.5)],
)
def test_the_result_of_a_function_is_limited_to_what_sqs_accepts(
    answer: float, expected: float
) -> None:
    assert [chosen(each, after()) for each in both_forms(answer)] == [expected, expected]


numbers = st.integers() | st.floats(allow_nan=False) | st.sampled_from((0, 43_200, 10**400))
counts = st.integers(-1, 2**70)
small = st.floats(0.01, 43_200)
policies = (
    st.sampled_from(("backoff", "immediate", "keep", "fixed(30)", "exponential(2, max=900)"))
    | st.builds(lambda step: f"linear({step!r})", small)
    | st.builds(lambda base: f"exponential({base!r}, 43200)", small)
    | st.builds(lambda answer: lambda **known: answer, numbers)
    | st.builds(lambda answer: lambda count: answer, numbers)
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
    assert 0 <= delay <= MAX_VISIBILITY_SECONDS
    sent = cut_release_delay(lease_of("h"), delay, held_for)
    assert 0 <= sent <= max(0, MAX_VISIBILITY_SECONDS - held_for)


async def _later(receive_count: int) -> int:
    return receive_count


def _yielding(receive_count: int) -> Iterator[int]:
    yield receive_count


class _Later:
    async def __call__(self, receive_count: int) -> int:
        return receive_count


class _Doubled:
    def __call__(self, receive_count: int) -> int:
        return 2 * receive_count


class _ByName:
    def __init__(self, receive_count: int) -> None:
        pass


class _Tripled:
    def __init__(self, factor: int, receive_count: int) -> None:
        pass


_PLAIN = "must be a plain function that returns seconds"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: 3, "too many positional arguments"),
        (lambda receive_count, task: 3, "missing a required argument: 'task'"),
        (lambda *, receive_count: 3, "too many positional arguments"),
        (lambda *, exception, receive_count: 3, "got an unexpected keyword argument 'message_age'"),
        (lambda *, queue, message_age, task, **_: 3, "missing a required argument: 'task'"),
        (lambda: 3, "`def backoff(*, exception, receive_count, message_age, queue)`"),
        (_later, _PLAIN),
        (functools.partial(_later), _PLAIN),
        (_Later(), _PLAIN),
        (_yielding, _PLAIN),
        (_Doubled, "is a class: name a function that returns seconds"),
        (_ByName, "is a class: name a function that returns seconds"),
        (functools.partial(_Tripled, 3), "is a class: name a function that returns seconds"),
        (time.time, "must be a function of the receive count alone"),
        (max, "must be a function of the receive count alone"),
    ],
)
def test_a_function_that_can_be_called_in_neither_form_is_one_fault(
    function: Any, said: str
) -> None:
    for fault in faults(function):
        assert f"{function!r}: " in fault
        assert said in fault


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda count, extra=1: count + extra, 3),
        (lambda *counts: counts[0], 2),
        (functools.partial(lambda base, count: base * count, 2), 4),
        (_Doubled(), 4),
        (lambda count=7, **_: count, 2),
        (lambda receive_count, **known: len(known), 3),
        (lambda receive_count, exception=None, **_: 1 if exception is KeyError else 0, 1),
    ],
)
def test_a_functions_signature_decides_its_form(function: Any, expected: float) -> None:
    assert read(function).rules.release_delay is function
    assert chosen(function, after(2, exception=KeyError)) == expected


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module with functions for the setting."""
    (tmp_path / "user_delays.py").write_text(
        "def backoff(*, receive_count, **_):\n    return receive_count * 3\n"
        "def by_count(count):\n    return count\n"
        "def wrong(one, two):\n    return 1\n"
        "class Backoff:\n    def __init__(self, receive_count): pass\n"
        "seconds = 30\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "user_delays"


@pytest.mark.parametrize(("name", "expected"), [("backoff", 12), ("by_count", 4)])
def test_a_function_can_be_named_by_its_path(module: str, name: str, expected: float) -> None:
    assert chosen(f"{module}:{name}", after(4)) == expected


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("user_delays:backof", "can't be imported (module 'user_delays' has no attribute"),
        ("no_such_module:backoff", "can't be imported (No module named 'no_such_module')"),
        ("no_such_module:backoff", "name a function in a module that the worker can import"),
        ("user_delays:seconds", "names 30, which is not a function"),
        ("user_delays:Backoff", "is a class: name a function that returns seconds"),
        ("user_delays:wrong", "missing a required argument: 'two'"),
        ("user_delays:", "is not a release policy"),
    ],
)
def test_a_path_that_names_no_such_function_is_one_fault(module: str, path: str, said: str) -> None:
    for fault in faults(path):
        assert f"={path!r}: " in fault
        assert said in fault


@pytest.mark.parametrize("setting", ["later", b"5", {"a": 1}, object(), [1, "2"]])
def test_a_value_of_any_other_kind_is_one_fault(setting: Any) -> None:
    for fault in faults(setting):
        assert "release_delay" in fault
