"""Settings of any value are either accepted and obey the rules, or refused by name."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import SQS, LeaseTerms
from celery_sqs_heartbeat.settings import NAMES, PREFIX, Rules, Settings, read_settings
from celery_sqs_heartbeat.settings.release_delay import (
    ExponentialDelay,
    Failure,
    QueueInfo,
    choose_delay,
)
from tests.fuzz.shapes import FUZZ, json_values, optional

numbers = (
    st.integers(-1, 100)
    | st.sampled_from((300, 43_199, 43_200, 43_201, 10**400))
    | st.floats(0.1, 100)
    | st.floats()
)
FAILURE = Failure(queue=QueueInfo(name="q", url="q", visibility_timeout=30), receive_count=1)
texts = st.sampled_from(("backoff", "keep", "immediate", "json:dumps", "x:y", "5"))
delays = (
    numbers
    | st.lists(numbers, max_size=3)
    | st.just(ExponentialDelay())
    | st.just(lambda count: count)
    | st.just(lambda **known: None)
    | texts
    | st.text(max_size=9)
)
odd: st.SearchStrategy[Any] = json_values | st.binary(max_size=3) | st.sets(st.integers())
rules = {
    "visibility_timeout": numbers,
    "threshold": numbers,
    "max_lease": numbers,
    "hold_eta": numbers,
    "release_delay": delays,
    "on_lost": st.sampled_from(("warn", "revoke", "terminate")),
}
#: Mostly correct, so that whole configurations often are.
loose_rules = {name: values | odd for name, values in rules.items()}
names = st.sampled_from(("q", "a.fifo", "{q}", "{", "%s", "")) | st.text(max_size=5)
queues = st.dictionaries(
    names, optional(**rules) | optional(**loose_rules, interval=numbers) | odd, max_size=2
)
tasks = st.dictionaries(
    names, st.booleans() | optional(**rules) | optional(**loose_rules) | odd, max_size=2
)
values = optional(enabled=st.booleans(), interval=numbers, queues=queues, **rules) | optional(
    enabled=odd, interval=numbers | odd, queues=queues | odd, **loose_rules
)


def read(values: dict[str, Any], tasks: dict[str, Any], leases: int) -> Settings | None:
    """Return the settings, or None if they were refused with proper faults."""
    conf = {PREFIX + name: value for name, value in values.items()}
    try:
        return read_settings(conf.get, names=conf, tasks=tasks, leases=leases)
    except ConfigurationError as error:
        check_faults(error)
        return None


def check_faults(error: ConfigurationError) -> None:
    known = (*NAMES, "sqs_heartbeat")
    assert error.faults
    for fault in error.faults:
        assert any(name in fault for name in known), fault
        assert fault in str(error)


def check(terms: LeaseTerms, interval: float | None) -> None:
    assert 0 < terms.threshold < terms.visibility_timeout <= SQS.longest_timeout
    assert terms.visibility_timeout <= terms.max_lease <= SQS.longest_timeout
    assert interval is None or 0 < interval < terms.threshold


@FUZZ
@given(values=values, tasks=tasks, leases=st.sampled_from((0, 1, 100, 100_000)))
@example(values={"queues": {"{q}": {"threshold": 0}}}, tasks={}, leases=0)
@example(values={"queues": {"{0.x}": {"ack": "no"}}}, tasks={"{": {"threshold": 0}}, leases=0)
def test_settings_of_any_value_are_accepted_or_refused(
    values: dict[str, Any], tasks: dict[str, Any], leases: int
) -> None:
    settings = read(values, tasks, leases)
    if settings is None:
        return
    assert isinstance(settings.enabled, bool)
    scopes: list[Rules] = [
        settings.rules,
        *map(settings.for_queue, settings.queues),
        *map(settings.rules.under, settings.tasks.values()),
    ]
    for scope in scopes:
        assert scope.on_lost in (None, "warn", "revoke", "terminate")
        if scope.visibility_timeout is not None:
            check(scope.terms(scope.visibility_timeout), settings.interval)
        if isinstance(scope.release_delay, ExponentialDelay) or not callable(scope.release_delay):
            delay = choose_delay(scope.release_delay, FAILURE)
            assert delay is not None
            assert 0 <= delay <= SQS.longest_timeout
