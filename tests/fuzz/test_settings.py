"""Settings of any value are either accepted and obey the rules, or refused by name."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import SQS
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
KNOWN = (
    "backoff",
    "keep",
    "immediate",
    "json:dumps",
    "x:y",
    "5",
    ExponentialDelay(),
    lambda **_: 1,
)
delays = numbers | st.lists(numbers, max_size=3) | st.sampled_from(KNOWN) | st.text(max_size=9)
odd: st.SearchStrategy[Any] = json_values | st.binary(max_size=3) | st.sets(st.integers())
rules = {
    **dict.fromkeys(("visibility_timeout", "threshold", "max_lease", "hold_eta"), numbers),
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


@FUZZ
@given(values=values, tasks=tasks, leases=st.sampled_from((0, 1, 100, 100_000)))
@example(values={"queues": {"{q}": {"threshold": 0}}}, tasks={}, leases=0)
@example(values={"queues": {"{0.x}": {"ack": "no"}}}, tasks={"{": {"threshold": 0}}, leases=0)
def test_settings_of_any_value_are_accepted_or_refused(
    values: dict[str, Any], tasks: dict[str, Any], leases: int
) -> None:
    conf = {PREFIX + name: value for name, value in values.items()}
    try:
        settings = read_settings(conf.get, names=conf, tasks=tasks, leases=leases)
    except ConfigurationError as error:
        refused = error.faults
        names = [name for name in (*NAMES, "sqs_heartbeat") if name in str(error)]
    else:
        check(settings)
        return
    assert refused
    assert [fault for fault in refused if not any(name in fault for name in names)] == []


def check(settings: Settings) -> None:
    assert isinstance(settings.enabled, bool)
    scopes: list[Rules] = [
        settings.rules,
        *map(settings.for_queue, settings.queues),
        *map(settings.rules.under, settings.tasks.values()),
    ]
    for scope in scopes:
        assert scope.on_lost in (None, "warn", "revoke", "terminate")
        if scope.visibility_timeout is not None:
            terms = scope.terms(scope.visibility_timeout)
            assert 0 < terms.threshold < terms.visibility_timeout <= terms.max_lease
            assert terms.max_lease <= SQS.longest_timeout
            assert settings.interval is None or 0 < settings.interval < terms.threshold
        if isinstance(scope.release_delay, ExponentialDelay) or not callable(scope.release_delay):
            delay = choose_delay(scope.release_delay, FAILURE)
            assert delay is not None
            assert 0 <= delay <= SQS.longest_timeout
