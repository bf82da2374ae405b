"""Settings and transport options: defaults, what overrides what, and every fault in one error."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import Settings, read_settings
from celery_sqs_heartbeat.settings.release_delay import ExponentialDelay
from celery_sqs_heartbeat.sqs.options import creation_faults, option_faults


def read(tasks: dict[str, Any] | None = None, leases: int = 0, **values: Any) -> Settings:
    conf = {f"sqs_heartbeat_{name}": value for name, value in values.items()}
    return read_settings(conf.get, names=conf, tasks=tasks, leases=leases)


def faults(tasks: dict[str, Any] | None = None, leases: int = 0, **values: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        read(tasks, leases, **values)
    return caught.value.faults


def test_nothing_needs_to_be_set() -> None:
    settings = read()
    assert not settings.enabled
    terms = settings.for_queue("q").terms(own_timeout=30)
    assert terms == LeaseTerms(visibility_timeout=30, threshold=10, max_lease=43_195)
    assert settings.longest_sleep() == 1.0


def test_the_interval_shrinks_with_the_threshold() -> None:
    assert read(visibility_timeout=3).longest_sleep() == 0.5
    assert read(visibility_timeout=3, interval=0.2).longest_sleep() == 0.2


def test_a_queue_overrides_the_general_setting_and_a_task_overrides_its_queue() -> None:
    settings = read(
        visibility_timeout=60,
        threshold=25,
        max_lease=3600,
        release_delay=1,
        queues={
            "slow": {"visibility_timeout": 300, "on_lost": "revoke", "release_delay": 2},
            "hasty": {"threshold": 50},
        },
        tasks={"report": {"max_lease": 600, "release_delay": [3]}, "quick": False},
    )
    assert settings.for_queue("q").terms(30).threshold == 25
    # A threshold belongs to the timeout that it was set with.
    assert settings.for_queue("slow").terms(30) == LeaseTerms(
        visibility_timeout=300, threshold=100, max_lease=3600
    )
    assert settings.for_queue("hasty").terms(30).threshold == 50
    report = settings.for_task("slow", "report")
    assert (report.terms(30).max_lease, report.on_lost) == (600, "revoke")
    assert settings.for_queue("hasty").on_lost is None
    assert not settings.for_task("slow", "quick").terms(30).extend
    assert settings.for_task("slow", "other").terms(30).extend
    scopes = [("q", "other"), ("slow", "other"), ("slow", "report")]
    assert [settings.for_task(*scope).release_delay for scope in scopes] == [1, 2, [3]]


TIMEOUT_RANGE = "must be 1 to 43200"
ADDRESS, TARGET = "must be 'HOST:PORT'", "must be a folder, or s3://BUCKET/PREFIX"
TOKEN = "status_token=...: must be at least 16 visible ASCII characters"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"visibility_timeout": -1}, f"visibility_timeout=-1: {TIMEOUT_RANGE}"),
        ({"visibility_timeout": 43_201}, f"visibility_timeout=43201: {TIMEOUT_RANGE}"),
        ({"visibility_timeout": 30.5}, "must be a whole number of seconds, not float"),
        ({"visibility_timeout": "30"}, "must be a whole number of seconds, not str"),
        ({"visibility_timeout": True}, "must be a whole number of seconds, not bool"),
        ({"threshold": 0}, "threshold=0: must be above 0"),
        ({"visibility_timeout": 30, "threshold": 30}, "threshold=30 must be below"),
        ({"interval": -1}, "interval=-1: must be above 0"),
        ({"keeper_timeout": 0}, "keeper_timeout=0: must be above 0"),
        (
            {"interval": 10, "visibility_timeout": 30},
            "sqs_heartbeat_interval=10 must be below sqs_heartbeat_threshold=10",
        ),
        (
            {"interval": 5, "queues": {"q": {"threshold": 5}}},
            "queues['q']: interval=5 must be below threshold=5",
        ),
        ({"flush_timeout": -1}, "flush_timeout=-1: must be 0 to 43200 seconds"),
        ({"flush_timeout": "9"}, "flush_timeout='9': must be a number of seconds, not str"),
        ({"fifo_waiting": -1}, "fifo_waiting=-1: must be a whole number of messages, 0 or more"),
        ({"fifo_batch": 11}, "fifo_batch=11: must be a whole number of messages, 1 to 10"),
        ({"session": "boto"}, "session='boto': must be 'module:function'"),
        ({"max_lease": 43_201}, "max_lease=43201: must be above 0 and at most 43200"),
        ({"max_lease": 20, "visibility_timeout": 30}, "max_lease=20 must be at least"),
        ({"on_lost": "panic"}, "on_lost='panic': must be one of 'warn', 'revoke', 'terminate'"),
        ({"enabled": "yes"}, "enabled='yes': must be True or False"),
        ({"queues": []}, "queues=[]: must be a dict of dicts"),
        ({"queues": {5: {"on_lost": "revoke"}}}, "queues[5]: must be the name of a queue, not int"),
        ({"queues": {"q": 5}}, "queues['q']=5: must be a dict"),
        ({"queues": {"q": {"interval": 5}}}, "queues['q']['interval']: can't be set here"),
        ({"queues": {"q": {"threshold": 0}}}, "queues['q']['threshold']=0: must be above 0"),
        ({"treshold": 5}, "did you mean sqs_heartbeat_threshold?"),
        # The most similar name by the part that differs, not by the prefix that all names share.
        ({"token": "x"}, "did you mean sqs_heartbeat_status_token?"),
        ({"max_leaes": 5}, "did you mean sqs_heartbeat_max_lease?"),
        ({"queues": {"q": {"treshold": 5}}}, "did you mean 'threshold'?"),
        ({"xyzzy": 5}, "there is no such setting; the settings are"),
        ({"tasks": {"t": {"ack": "inline"}}}, "task 't': sqs_heartbeat['ack']: can't be set here"),
        ({"tasks": {"t": 5}}, "task 't': sqs_heartbeat=5: must be a dict of settings, or False"),
        (
            {"tasks": {"t": {"visibility_timeout": 5, "threshold": 6}}},
            "task 't': sqs_heartbeat: threshold=6 must be below",
        ),
        (
            {"leases": 12_000, "visibility_timeout": 30},
            "needs 60 calls a second to extend 12000 messages",
        ),
        # A fault that a queue inherits is reported once.
        ({"visibility_timeout": 30, "threshold": 40, "queues": {"a": {}, "b": {}}}, "threshold=40"),
        ({"status": "::1:9808"}, f"status='::1:9808': {ADDRESS}"),
        ({"status": "localhost:x"}, f"status='localhost:x': {ADDRESS}"),
        ({"status": 9808}, f"status=9808: {ADDRESS}"),
        ({"status": "localhost:99999"}, "status='localhost:99999': has a port above 65535"),
        *(
            ({"status": f"{host}:9808"}, "needs sqs_heartbeat_status_token; or bind it to 127.0.0.")
            for host in ("0.0.0.0", "[::]", "10.1.2.3", "worker.example", "localhost.example")
        ),
        # Guessable, or impossible to send. The value is not shown.
        *(
            ({"status_token": token}, TOKEN)
            for token in ("", "secret", "with a secret in it", "secret" * 4 + "\r\n", "sécret" * 4)
        ),
        # It is one fault, and not a missing one, too.
        ({"status": "0.0.0.0:9808", "status_token": "short"}, TOKEN),
        *(
            ({"journal": target}, f"journal={target!r}: {TARGET}")
            for target in ("", "s3://", "s3://bucket/../prefix", "gs://bucket", 5)
        ),
    ],
)
def test_each_fault_names_setting_value_and_rule(values: dict[str, Any], said: str) -> None:
    (fault,) = faults(**values)
    assert said in fault


def test_every_fault_is_listed_in_one_error() -> None:
    own = {"visibility_timeout": 5, "threshold": 6}
    found = {"visibility_timeout": -1, "threshold": "x", "ack": "no", "queues": {"q": 3}}
    with pytest.raises(ConfigurationError) as caught:
        read({"a": own, "b": own}, **found)
    assert len(caught.value.faults) == 6
    assert str(caught.value).startswith("sqs-heartbeat: 6 settings are wrong:\n  - ")


@pytest.mark.parametrize(
    ("values", "own_timeout", "leases", "said"),
    [
        ({"threshold": 40}, 30, 8, "queue 'q': threshold=40 must be below visibility_timeout=30"),
        ({"interval": 2}, 3, 8, "queue 'q': interval=2 must be below threshold=1"),
        ({}, 2, 100_000, "calls a second"),
        ({}, 0, 8, "queue 'q': visibility_timeout=0 must be at least 1"),
        ({"threshold": 10}, 0, 8, "queue 'q': visibility_timeout=0 must be at least 1"),
        ({"max_lease": 20}, 30, 8, "queue 'q': max_lease=20 must be at least visibility_timeout"),
        ({"tasks": {"t": {"threshold": 35}}}, 30, 8, "task 't' on queue 'q': threshold=35"),
    ],
)
def test_settings_that_depend_on_the_queues_timeout_are_checked_once_it_is_known(
    values: dict[str, Any], own_timeout: int, leases: int, said: str
) -> None:
    (fault,) = read(**values).faults_with("q", own_timeout, leases)
    assert said in fault


def test_the_longest_visibility_timeout_needs_no_max_lease() -> None:
    assert read(visibility_timeout=43_200).faults_with("q", 30, 8) == []


def test_a_status_page_needs_no_token_on_loopback_and_shows_none() -> None:
    for address in ("127.0.0.1:0", "[::1]:9808", "localhost:9808"):
        assert read(status=address).status == address
    settings = read(status="0.0.0.0:9808", status_token="a-secret-of-some-length")
    assert settings.status
    assert "secret" not in repr(settings)


async def _later(**_: Any) -> int:
    return 1


def _yielding(**_: Any) -> Iterator[int]:
    yield 1


class _Doubled:
    def __call__(self, receive_count: int, **_: Any) -> int:
        return 2 * receive_count


_PLAIN = "must be a plain function that returns seconds"
_ARGUMENTS = "must be a function of exception, receive_count, message_age, queue"
_TEXT = "is text: write seconds or a list of them without quotes, one of 'backoff', 'immediate', "
_UNEXPECTED, _MISSING = "got an unexpected keyword argument ", "missing a required argument: "
_KINDS = "must be seconds, a list of seconds by receive count, 'backoff', 'immediate', 'keep', a"


@pytest.fixture
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module with functions for the setting."""
    (tmp_path / "user_delays.py").write_text(
        "def backoff(*, receive_count, **_):\n    return receive_count * 3\n"
        "def wrong(one, two):\n    return 1\n"
        "class Backoff:\n    def __init__(self, **known): pass\n"
        "seconds = 30\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (-1, "must be 0 to 43200"),
        ([], "must have at least one delay"),
        ([0, -1], "must be 0 to 43200"),
        ([1, "2"], "must be a number of seconds, not str"),
        *((value, _KINDS) for value in (b"5", {"a": 1}, object(), True)),
        *((text, _TEXT) for text in ("", "5", "[1, 10]", "exponential(base=2)", "user_delays:")),
        ("proj.delays.backoff", "or a function as 'proj.delays:backoff'"),
        ("Keep", "did you mean 'keep'?"),
        ("imediate", "did you mean 'immediate'?"),
        ("user_delays:backof", "can't be imported (module 'user_delays' has no attribute"),
        ("no_such_module:backoff", "can't be imported (No module named 'no_such_module')"),
        ("no_such_module:backoff", "name a function in a module that the worker can import"),
        ("user_delays:seconds", "names 30, which is not a function"),
        ("user_delays:Backoff", _PLAIN),
        ("user_delays:wrong", f"{_MISSING}'one'"),
        (lambda receive_count: 3, f"{_UNEXPECTED}'exception'"),
        (lambda *, exception, receive_count: 3, f"{_UNEXPECTED}'message_age'"),
        (lambda *, queue, message_age, task, **_: 3, f"{_MISSING}'task'"),
        (lambda: 3, "`def backoff(*, receive_count, **_)`"),
        *((each, _PLAIN) for each in (_later, functools.partial(_later), _yielding, _Doubled)),
        *((each, _ARGUMENTS) for each in (time.time, max)),
    ],
)
def test_a_release_delay_that_means_none_is_one_fault_wherever_it_is_set(
    setting: Any, said: str
) -> None:
    found = [
        *faults(release_delay=setting),
        *faults(queues={"q": {"release_delay": setting}}),
        *faults({"t": {"release_delay": setting}}),
    ]
    assert len(found) == 3
    for fault in found:
        assert f"{setting!r}: " in fault
        assert said in fault


@pytest.mark.usefixtures("_module")
def test_a_release_delay_is_kept_in_its_form_and_a_named_function_is_imported() -> None:
    for setting in (0, [0, 2], functools.partial(_Doubled()), _Doubled(), ExponentialDelay()):
        assert read(release_delay=setting).rules.release_delay is setting
    imported: Any = read(release_delay="user_delays:backoff").rules.release_delay
    assert imported(receive_count=4) == 12


SECRET = "s3cr3t"
ROLE = {"sts_role_arn": "arn:aws:iam::1:role/r"}
URL = "https://sqs.eu-west-1.amazonaws.com/1/q"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"an_option_of_another_version": object()},
        *({"wait_time_seconds": value, "polling_interval": value} for value in (0, 1, 20)),
        {"queue_name_prefix": "", "region": None, "polling_interval": None},
        {"region": "eu-west-1", "sts_role_arn": "arn:aws:iam::1:role/r", "sts_token_timeout": 900},
        # They matter only with a role, or if a queue has to be created.
        {"sts_token_timeout": "x", "sts_token_buffer_time": -1},
        {"visibility_timeout": 86_400, "sqs-creation-attributes": 5},
        *({"client-config": value} for value in (None, {}, {"read_timeout": None})),
        {"client-config": {"connect_timeout": 0.1, "proxies": {"https": "http://x"}}},
        {"client-config": {"retries": {"mode": "adaptive", "max_attempts": 4}}},
        *({"predefined_queues": value} for value in (None, {}, {"q": {"url": URL}})),
        {"predefined_queues": {"q.fifo": {"url": f"{URL}.fifo"}}},
    ],
)
def test_options_that_a_worker_can_start_with_have_no_faults(options: dict[str, Any]) -> None:
    assert [*option_faults(options)] == []


@pytest.mark.parametrize(
    ("options", "where", "rule"),
    [
        (5, "broker_transport_options=5", "must be a dict"),
        *(
            ({"wait_time_seconds": value}, f"['wait_time_seconds']={value!r}", "from 0 to 20")
            for value in (-1, 21, "10", 1.5, None, True)
        ),
        *(
            ({"polling_interval": value}, f"['polling_interval']={value!r}", "0 or more")
            for value in (-1, "1", True)
        ),
        ({5: 1}, "[5]", "the name of an option, not int"),
        ({"is_secure": "no"}, "['is_secure']='no'", "True or False"),
        ({"queue_name_prefix": 5}, "['queue_name_prefix']=5", "a string"),
        ({"region": 5}, "['region']=5", "eu-west-1"),
        ({"region": "nowhere at all"}, "['region']='nowhere at all'", "eu-west-1"),
        ({"sts_role_arn": 5}, "['sts_role_arn']=5", "arn:aws:iam"),
        ({**ROLE, "sts_token_timeout": "x"}, "['sts_token_timeout']='x'", "above 0"),
        ({**ROLE, "sts_token_buffer_time": -1}, "['sts_token_buffer_time']=-1", "0 or more"),
        ({"client-config": 5}, "['client-config']=5", "botocore.config.Config"),
        *(
            ({"client-config": {name: value}}, f"[{name!r}]={value!r}", "above 0, or None")
            for name in ("connect_timeout", "read_timeout")
            for value in (0, -1, "5", True, [5], float("inf"))
        ),
        ({"client-config": {"read_timout": 5}}, "['client-config']", "'read_timout'"),
        ({"client-config": {"retries": {"mode": "nope"}}}, "['client-config']", '"nope"'),
        ({"predefined_queues": [URL]}, "['predefined_queues']", "by queue name"),
        ({"predefined_queues": {"q": {}}}, "['predefined_queues']['q']", "'url'"),
        ({"predefined_queues": {"q": {"url": None}}}, "['predefined_queues']['q']", "'url'"),
        ({"predefined_queues": {"q": {"url": "q"}}}, "['predefined_queues']['q']", "'url'"),
        ({"predefined_queues": {"q": URL}}, "['predefined_queues']['q']", "'url'"),
        ({"predefined_queues": {"q.fifo": {"url": URL}}}, "['q.fifo']", "both end in .fifo"),
        ({"predefined_queues": {"q": {"url": f"{URL}.fifo"}}}, "['q']", "both end in .fifo"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_its_rule(
    options: Any, where: str, rule: str
) -> None:
    (fault,) = option_faults(options)
    assert fault.startswith("broker_transport_options")
    assert where in fault
    assert rule in fault


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("visibility_timeout", each, "from 0 to 43200") for each in (-1, 43201, "x", [30])),
        ("visibility_timeout", float("inf"), "from 0 to 43200"),
        ("sqs-creation-attributes", 5, "a dict with a string for each"),
        ("sqs-creation-attributes", {"DelaySeconds": 5}, "a dict with a string for each"),
    ],
)
def test_options_that_no_queue_can_be_created_with_are_named(
    name: str, value: Any, said: str
) -> None:
    (fault,) = creation_faults({name: value})
    assert fault.startswith(f"broker_transport_options[{name!r}]={value!r}: must be ")
    assert said in fault


@pytest.mark.parametrize("value", [None, "", "30", 0, 43200, 60.0])
def test_a_queue_can_be_created_with_each_timeout_that_kombu_understands(value: object) -> None:
    options = {"visibility_timeout": value, "sqs-creation-attributes": {"KmsMasterKeyId": "k"}}
    assert [*creation_faults(options)] == []


def test_all_wrong_options_are_listed_at_once() -> None:
    wrong = {"read_timeout": 0, "connect_timeout": "x", "read_timout": 5}
    options = {"wait_time_seconds": 50, "client-config": wrong}
    assert len([*option_faults(options)]) == 4


def test_options_that_may_contain_a_key_are_not_quoted() -> None:
    options = {
        "predefined_queues": {"q": {"secret_access_key": SECRET}, "r": SECRET},
        "client-config": {"proxies": {"https": f"http://user:{SECRET}@proxy"}, "nope": SECRET},
    }
    faults = [*option_faults(options)]
    assert len(faults) == 3
    assert SECRET not in str(faults)
