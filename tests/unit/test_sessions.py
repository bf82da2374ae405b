"""`sqs_heartbeat_session`: a function of the user's that makes boto3 sessions."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from celery_sqs_heartbeat import ConfigurationError
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, ClientPool
from celery_sqs_heartbeat.sqs.options import find_session_function

URL = "https://sqs.eu-west-1.amazonaws.com/1/q"


def new_session() -> boto3.Session:
    return boto3.Session(
        aws_access_key_id="theirs", aws_secret_access_key="secret", region_name="eu-west-1"
    )


def no_session() -> str:
    return "a session"


def test_the_functions_session_signs_the_calls() -> None:
    clients = ClientPool(find_session_function(f"{__name__}:new_session"))
    config = BrokerConfig(
        endpoint_url=None, region="us-east-1", use_ssl=True, access_key="ours", secret_key="x"
    )
    clients.use(config, URL, 10.0)
    client = clients(URL)
    assert client.meta.region_name == "eu-west-1"
    signed: list[str] = []

    def stop(request: Any, **_: Any) -> None:
        signed.append(str(request.headers["Authorization"]))
        raise ConnectionAbortedError

    client.meta.events.register("before-send", stop)
    with pytest.raises(ConnectionAbortedError):
        client.delete_message(QueueUrl=URL, ReceiptHandle="h")
    assert "Credential=theirs/" in signed[0]


def fails() -> boto3.Session:
    raise RuntimeError("the vault is closed")


def test_a_function_that_fails_is_named_with_what_it_must_do() -> None:
    path = f"{__name__}:fails"
    with pytest.raises(ConfigurationError) as raised:
        find_session_function(path)()
    (fault,) = raised.value.faults
    assert f"sqs_heartbeat_session={path!r}: failed (RuntimeError('the vault is closed'))" in fault
    assert "it must return a boto3.Session" in fault


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("no.such.module:new", "can't be imported"),
        (f"{__name__}:gone", "can't be imported"),
        (f"{__name__}:URL", "is not a function"),
    ],
)
def test_a_path_that_names_no_function_is_refused(path: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault) as raised:
        find_session_function(path)
    assert f"sqs_heartbeat_session={path!r}" in str(raised.value)


def test_a_function_that_returns_no_session_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"returned str: return a boto3\.Session"):
        find_session_function(f"{__name__}:no_session")()


@pytest.mark.parametrize(
    "value", ["proj", "proj.aws", "proj:aws:new", ":new", "1:new", 5, new_session]
)
def test_the_setting_is_a_path(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be 'module:function'"):
        read_settings({"sqs_heartbeat_session": value}.get)
    settings = read_settings({"sqs_heartbeat_session": "proj.aws:new_session"}.get)
    assert settings.session == "proj.aws:new_session"
