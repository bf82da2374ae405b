"""A client whose deletes are direct behaves as boto3's, and boto3 repeats what fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ParamValidationError,
    ReadTimeoutError,
)

from celery_sqs_heartbeat.sqs.direct.deletes import make_deletes_direct
from tests.support.direct_calls import QUEUE, AnsweredClient, answer, texts

INVALID = {"__type": "com.amazonaws.sqs#ReceiptHandleIsInvalid", "message": "not ours"}


class Deletes(AnsweredClient):
    """A client as kombu makes it, whose deletes are direct."""

    def __init__(self, mode: str = "legacy") -> None:
        keys = {"aws_access_key_id": "AKIATEST", "aws_secret_access_key": "secret"}
        session = boto3.Session(region_name="eu-west-1", **keys)
        once = Config(retries={"total_max_attempts": 1, "mode": mode})
        super().__init__(session.client("sqs", config=once))
        self.answer = answer(b"")
        make_deletes_direct(self.client)

    def delete(self, handle: str = "handle-1") -> Any:
        return self.client.delete_message(QueueUrl=QUEUE, ReceiptHandle=handle)


@pytest.fixture
def deletes() -> Deletes:
    """Return a client that has made its first delete."""
    client = Deletes()
    client.delete()
    assert client.by_boto3 == 1
    return client


def test_a_direct_delete_is_boto3s_request_with_another_handle(deletes: Deletes) -> None:
    deletes.delete("handle-2")
    assert deletes.by_boto3 == 1
    first, second = deletes.requests
    assert second.body == first.body.replace(b"handle-1", b"handle-2")
    assert (second.method, second.url) == (first.method, first.url)
    for name in ("x-amz-target", "content-type", "user-agent"):
        assert texts(second)[name] == texts(first)[name]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"odd": 1}', b"<html>"])
def test_an_answer_of_status_200_confirms_a_delete_as_with_boto3(
    deletes: Deletes, body: bytes
) -> None:
    deletes.answer = answer(body)
    deletes.delete()
    assert deletes.by_boto3 == 1


@pytest.mark.parametrize(
    "fault",
    [
        answer(INVALID, 400),
        answer(b"", 500),
        ConnectionClosedError(endpoint_url="http://x"),
        ReadTimeoutError(endpoint_url="http://x"),
        RuntimeError("a bug of ours"),
    ],
)
def test_boto3_repeats_a_delete_that_fails_once(deletes: Deletes, fault: Any) -> None:
    def fail_once(request: Any) -> Any:
        deletes.answer = answer(b"")
        if isinstance(fault, Exception):
            raise fault
        return fault(request)

    deletes.answer = fail_once
    deletes.delete()
    assert (deletes.by_boto3, len(deletes.requests)) == (2, 3)
    deletes.delete()
    assert deletes.by_boto3 == 2


def test_a_delete_that_keeps_failing_raises_boto3s_error(deletes: Deletes) -> None:
    deletes.answer = answer(INVALID, 400)
    with pytest.raises(ClientError) as raised:
        deletes.delete()
    assert raised.value.response["Error"]["Code"] == "ReceiptHandleIsInvalid"
    assert deletes.by_boto3 == 2


def test_a_delete_that_is_interrupted_is_not_repeated(deletes: Deletes) -> None:
    def interrupt(request: Any) -> None:
        raise KeyboardInterrupt

    deletes.answer = interrupt
    with pytest.raises(KeyboardInterrupt):
        deletes.delete()
    assert (deletes.by_boto3, len(deletes.requests)) == (1, 2)


def test_boto3_makes_more_deletes_after_each_direct_one_in_a_row_that_is_refused(
    deletes: Deletes,
) -> None:
    def refuse_direct(request: Any) -> Any:
        return answer(b"", 200 if "amz-sdk-invocation-id" in texts(request) else 403)(request)

    deletes.answer = refuse_direct
    for _ in range(20):
        deletes.delete()
    # boto3 repeats the first, second, fourth, eighth and sixteenth one.
    assert len(deletes.requests) == 1 + 20 + 5
    deletes.answer = answer(b"")
    for _ in range(12):
        deletes.delete()
    made = deletes.by_boto3
    deletes.delete()
    assert deletes.by_boto3 == made
    deletes.answer = refuse_direct
    deletes.delete()
    deletes.answer = answer(b"")
    deletes.delete()
    assert deletes.by_boto3 == made + 1


@pytest.mark.parametrize("mode", ["standard", "adaptive"])
def test_boto3_makes_every_delete_in_a_retry_mode_that_counts_successes(mode: str) -> None:
    deletes = Deletes(mode)
    for _ in range(3):
        deletes.delete()
    assert deletes.by_boto3 == 3


def test_boto3_refuses_the_wrong_parameters(deletes: Deletes) -> None:
    for wrong in ({}, {"ReceiptHandle": 5}, {"ReceiptHandle": "h", "Unknown": "x"}):
        with pytest.raises(ParamValidationError):
            deletes.client.delete_message(QueueUrl=QUEUE, **wrong)
    assert len(deletes.requests) == 1


def test_deletes_become_direct_only_once(deletes: Deletes) -> None:
    once = deletes.client.delete_message
    make_deletes_direct(deletes.client)
    assert deletes.client.delete_message is once


def test_a_client_that_is_not_boto3s_is_left_alone() -> None:
    client = SimpleNamespace(delete_message=print)
    make_deletes_direct(client)
    assert vars(client) == {"delete_message": print}


def test_boto3_makes_every_delete_if_something_adds_handlers_to_each_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = BaseClient.__init__

    # As Sentry's SDK does.
    def patched(self: Any, *args: Any, **given: Any) -> None:
        original(self, *args, **given)
        self.meta.events.register("request-created", lambda **_: None)

    monkeypatch.setattr(BaseClient, "__init__", patched)
    deletes = Deletes()
    for _ in range(3):
        deletes.delete()
    assert deletes.by_boto3 == 3
