"""Which arguments of a `LeaseKeeper` another process can use, and how boto3 clients get there."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from celery_sqs_heartbeat import BotoSqs, ConfigurationError, LeaseKeeper, short_config
from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.consumer.handover import config_of
from celery_sqs_heartbeat.link.reaching import reach, read_config
from celery_sqs_heartbeat.sqs.clients import new_client

URL = "http://127.0.0.1:1/1/work"
MESSAGE = {"MessageId": "a", "ReceiptHandle": "a-1"}
NO_KEYS = {"AWS_CONFIG_FILE": "none", "AWS_SHARED_CREDENTIALS_FILE": "none"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in NO_KEYS.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    use_keys(monkeypatch, "AKIAENV")


def use_keys(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, key) if key else monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


def new_boto_client(**options: Any) -> Any:
    return boto3.client(
        "sqs", **{"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1", **options}
    )


def keys(key: str) -> dict[str, str]:
    return {"aws_access_key_id": key, "aws_secret_access_key": "secret"}


def new_session() -> boto3.Session:
    return boto3.Session(**keys("AKIAGIVEN"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"clock": lambda: 0.0}, "clock"),
        ({"jitter": lambda: 1.0}, "jitter"),
        ({"dispatcher": SimpleNamespace()}, "dispatcher"),
        ({"board": SimpleNamespace()}, "board"),
    ],
)
def test_arguments_that_another_process_can_not_use_are_refused_by_name(
    options: Mapping[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{named}: .*leave out process=True"):
        LeaseKeeper(BotoSqs(new_boto_client()), process=True, **options)


def test_all_faults_are_in_one_error() -> None:
    with pytest.raises(ConfigurationError) as raised:
        LeaseKeeper(
            SimpleNamespace(send=print),  # type: ignore[arg-type]
            process=True,
            clock=lambda: 0.0,
            jitter=lambda: 1.0,
        )
    assert [fault.partition(":")[0] for fault in raised.value.faults] == ["clock", "jitter", "sqs"]


def test_the_defaults_have_no_faults() -> None:
    sqs = BotoSqs(new_boto_client())
    LeaseKeeper(sqs, process=True, clock=clocks.now, jitter=random.random)


def test_a_client_that_is_not_boto3s_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="sqs: its client is a SimpleNamespace"):
        LeaseKeeper(BotoSqs(SimpleNamespace()), process=True)


def test_a_client_of_a_function_is_looked_at_when_its_queue_is_first_seen() -> None:
    keeper = LeaseKeeper(BotoSqs(lambda queue_url: SimpleNamespace()), process=True)
    with pytest.raises(ConfigurationError, match="SimpleNamespace"):
        keeper.receive(URL, MESSAGE)


@pytest.mark.parametrize(
    ("in_environment", "given", "fault"),
    [
        (None, keys("AKIAGIVEN"), "finds no credentials .*session='module:function'"),
        ("AKIAENV", keys("AKIAGIVEN"), "finds other credentials: .*session='module:function'"),
        ("AKIAENV", keys("AKIAENV"), None),
        ("AKIAENV", {}, None),
        (None, {"config": Config(signature_version=UNSIGNED)}, None),
    ],
)
def test_another_process_must_find_the_credentials_of_the_client(
    monkeypatch: pytest.MonkeyPatch, in_environment: str | None, given: Any, fault: str | None
) -> None:
    use_keys(monkeypatch, in_environment)
    sqs = BotoSqs(new_boto_client(**given))
    if fault is None:
        LeaseKeeper(sqs, process=True)
        return
    with pytest.raises(ConfigurationError, match=fault) as raised:
        LeaseKeeper(sqs, process=True)
    assert "AKIA" not in str(raised.value)
    LeaseKeeper(sqs, process=True, session=f"{__name__}:new_session")


def test_credentials_that_can_not_be_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sqs = BotoSqs(new_boto_client(**keys("AKIAGIVEN")))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigurationError, match=r"no credentials \(Partial .*session='module"):
        LeaseKeeper(sqs, process=True)


def test_a_session_that_can_not_be_created_is_refused() -> None:
    sqs = BotoSqs(new_boto_client())
    with pytest.raises(ConfigurationError, match="session='nowhere:new': can't be imported"):
        LeaseKeeper(sqs, process=True, session="nowhere:new")
    with pytest.raises(ConfigurationError, match="session='os:getcwd': returned str"):
        LeaseKeeper(sqs, process=True, session="os:getcwd")
    with pytest.raises(ConfigurationError, match="session='a:b': needs process=True"):
        LeaseKeeper(sqs, session="a:b")


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint_url": None},
        {"endpoint_url": None, "config": Config(use_fips_endpoint=True)},
        {"endpoint_url": None, "config": Config(use_dualstack_endpoint=True)},
        {"endpoint_url": "http://127.0.0.1:1", "config": short_config(2)},
        {"config": Config(proxies={"https": "http://proxy:1"}, client_cert=("cert", "key"))},
        {"config": Config(signature_version=UNSIGNED)},
    ],
)
def test_a_client_is_recreated_with_the_same_options(options: Mapping[str, Any]) -> None:
    client = new_boto_client(**options)
    _, url, threshold, _, plain = reach(config_of(client), URL, 3.0, URL)
    made = new_client(read_config(plain), url, threshold)
    assert made.meta.endpoint_url == client.meta.endpoint_url
    assert made.meta.region_name == client.meta.region_name
    for name in ("proxies", "client_cert", "signature_version"):
        assert getattr(made.meta.config, name) == getattr(client.meta.config, name)
    shortest = short_config(3.0).read_timeout
    assert made.meta.config.read_timeout == min(shortest, client.meta.config.read_timeout)
