"""Settings: defaults, which setting overrides which, and every fault in one error."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import Settings, read_settings


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
        queues={
            "slow": {"visibility_timeout": 300, "on_lost": "revoke"},
            "hasty": {"threshold": 50},
        },
        tasks={"report": {"max_lease": 600}, "quick": False},
    )
    assert settings.for_queue("q").terms(30).threshold == 25
    # A threshold belongs to the timeout that it was set with.
    assert settings.for_queue("slow").terms(30) == LeaseTerms(
        visibility_timeout=300, threshold=100, max_lease=3600
    )
    assert settings.for_queue("hasty").terms(30).threshold == 50
    assert settings.for_task("slow", "report").terms(30).max_lease == 600
    assert settings.for_task("slow", "report").on_lost == "revoke"
    assert settings.for_queue("hasty").on_lost is None
    assert not settings.for_task("slow", "quick").terms(30).extend
    assert settings.for_task("slow", "other").terms(30).extend


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"visibility_timeout": -1}, "visibility_timeout=-1: must be 1 to 43200"),
        ({"visibility_timeout": 43_201}, "visibility_timeout=43201: must be 1 to 43200"),
        ({"visibility_timeout": 30.5}, "must be a whole number of seconds, not float"),
        ({"visibility_timeout": "30"}, "must be a whole number of seconds, not str"),
        ({"visibility_timeout": True}, "must be a whole number of seconds, not bool"),
        ({"threshold": 0}, "threshold=0: must be above 0"),
        ({"threshold": -1}, "threshold=-1: must be above 0"),
        ({"visibility_timeout": 30, "threshold": 30}, "threshold=30 must be below"),
        ({"visibility_timeout": 30, "threshold": 31}, "threshold=31 must be below"),
        ({"interval": 0}, "interval=0: must be above 0"),
        ({"interval": -1}, "interval=-1: must be above 0"),
        ({"keeper_timeout": 0}, "keeper_timeout=0: must be above 0"),
        (
            {"interval": 10, "visibility_timeout": 30},
            "sqs_heartbeat_interval=10 must be below sqs_heartbeat_threshold=10",
        ),
        ({"interval": 5, "threshold": 5}, "interval=5 must be below"),
        (
            {"interval": 5, "queues": {"q": {"threshold": 5}}},
            "queues['q']: interval=5 must be below threshold=5",
        ),
        ({"flush_timeout": -1}, "flush_timeout=-1: must be 0 to 43200 seconds"),
        ({"flush_timeout": "9"}, "flush_timeout='9': must be a number of seconds, not str"),
        ({"queues": {"q": {"flush_timeout": 5}}}, "queues['q']['flush_timeout']: can't be set"),
        ({"max_lease": 43_201}, "max_lease=43201: must be above 0 and at most 43200"),
        ({"max_lease": 20, "visibility_timeout": 30}, "max_lease=20 must be at least"),
        ({"on_lost": "panic"}, "on_lost='panic': must be one of 'warn', 'revoke', 'terminate'"),
        ({"enabled": "yes"}, "enabled='yes': must be True or False"),
        ({"release_delay": -1}, "release_delay=-1: must be 0 to 43200"),
        ({"release_delay": []}, "must have at least one delay"),
        ({"release_delay": [0, -1]}, "must be 0 to 43200"),
        ({"release_delay": b"5"}, "must be seconds, a list"),
        ({"queues": {5: {"on_lost": "revoke"}}}, "queues[5]: must be the name of a queue, not int"),
        (
            {"release_delay": "5"},
            "release_delay='5': is text: write seconds or a list of them without quotes",
        ),
        ({"queues": []}, "queues=[]: must be a dict of dicts"),
        ({"queues": {"q": 5}}, "queues['q']=5: must be a dict"),
        ({"queues": {"q": {"interval": 5}}}, "queues['q']['interval']: can't be set here"),
        ({"queues": {"q": {"threshold": 0}}}, "queues['q']['threshold']=0: must be above 0"),
        ({"treshold": 5}, "did you mean sqs_heartbeat_threshold?"),
        # The most similar name by the part that differs, not by the prefix that all names share.
        ({"token": "x"}, "did you mean sqs_heartbeat_status_token?"),
        ({"jurnal": "x"}, "did you mean sqs_heartbeat_journal?"),
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
    ],
)
def test_each_fault_names_setting_value_and_rule(values: dict[str, Any], said: str) -> None:
    (fault,) = faults(**values)
    assert said in fault


def test_every_fault_is_listed_in_one_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(visibility_timeout=-1, threshold="x", ack="no", queues={"q": 3})
    assert len(caught.value.faults) == 4
    assert str(caught.value).startswith("sqs-heartbeat: 4 settings are wrong:\n  - ")


def test_a_fault_that_a_queue_inherits_is_reported_once() -> None:
    assert len(faults(visibility_timeout=30, threshold=40, queues={"a": {}, "b": {}})) == 1


def test_a_fault_that_two_tasks_have_of_their_own_is_reported_for_both() -> None:
    own = {"visibility_timeout": 5, "threshold": 6}
    assert len(faults(tasks={"a": own, "b": own})) == 2


@pytest.mark.parametrize(
    ("values", "own_timeout", "leases", "said"),
    [
        ({"threshold": 40}, 30, 8, "queue 'q': threshold=40 must be below visibility_timeout=30"),
        ({"interval": 2}, 3, 8, "queue 'q': interval=2 must be below threshold=1"),
        ({}, 2, 100_000, "calls a second"),
        ({}, 0, 8, "queue 'q': visibility_timeout=0 must be at least 1"),
        ({"max_lease": 20}, 30, 8, "queue 'q': max_lease=20 must be at least visibility_timeout"),
        ({"tasks": {"t": {"threshold": 35}}}, 30, 8, "task 't' on queue 'q': threshold=35"),
    ],
)
def test_settings_that_depend_on_the_queues_timeout_are_checked_once_it_is_known(
    values: dict[str, Any], own_timeout: int, leases: int, said: str
) -> None:
    settings = read(**values)
    assert said in settings.faults_with("q", own_timeout, leases)[0]


def test_the_longest_visibility_timeout_needs_no_max_lease() -> None:
    assert read(visibility_timeout=43_200).faults_with("q", 30, 8) == []


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        ("status", "9808", "must be 'HOST:PORT'"),
        ("status", ":9808", "must be 'HOST:PORT'"),
        ("status", "::1:9808", "must be 'HOST:PORT'"),
        ("status", "localhost:99999", "has a port above 65535"),
        ("status", "localhost:x", "must be 'HOST:PORT'"),
        ("status", 9808, "must be 'HOST:PORT'"),
        ("journal", "", "must be a folder"),
        ("journal", "s3://", "must be a folder, or s3://BUCKET/PREFIX"),
        ("journal", "s3://bucket/../prefix", "must be a folder, or s3://BUCKET/PREFIX"),
        ("journal", "gs://bucket", "must be a folder, or s3://BUCKET/PREFIX"),
        ("journal", 5, "must be a folder"),
    ],
)
def test_the_addresses_that_a_worker_reports_to_are_checked(
    setting: str, value: Any, fault: str
) -> None:
    (told,) = faults(**{setting: value})
    assert told.startswith(f"sqs_heartbeat_{setting}={value!r}: ")
    assert fault in told


def test_a_status_page_that_others_can_reach_needs_a_token() -> None:
    for host in ("0.0.0.0", "[::]", "10.1.2.3", "worker.example", "localhost.example"):
        (fault,) = faults(status=f"{host}:9808")
        assert "so it needs sqs_heartbeat_status_token; or bind it to 127.0.0.1" in fault
    for address in ("127.0.0.1:0", "[::1]:9808", "localhost:9808"):
        assert read(status=address).status == address
    assert read(status="0.0.0.0:9808", status_token="x" * 16).status


@pytest.mark.parametrize(
    "token", ["", "secret", "with a secret in it", "secret" * 4 + "\r\nX: y", "sécret" * 4]
)
def test_a_token_that_is_guessable_or_can_not_be_sent_is_reported_but_not_shown(token: str) -> None:
    (fault,) = faults(status_token=token)
    assert fault.startswith("sqs_heartbeat_status_token=...: ")
    assert "at least 16 visible ASCII characters" in fault


def test_a_bad_token_is_one_fault_and_not_a_missing_one_too() -> None:
    (fault,) = faults(status="0.0.0.0:9808", status_token="short")
    assert fault.startswith("sqs_heartbeat_status_token=...: ")


@pytest.mark.parametrize("threshold", [None, 10])
def test_the_error_for_a_queue_with_a_timeout_of_0_names_the_timeout(
    threshold: float | None,
) -> None:
    (fault,) = read(threshold=threshold).faults_with("q", 0, 8)
    assert "visibility_timeout=0 must be at least 1" in fault
    assert "threshold" not in fault


def test_a_token_is_not_shown_with_the_settings() -> None:
    assert "secret" not in repr(read(status_token="a-secret-of-some-length"))
