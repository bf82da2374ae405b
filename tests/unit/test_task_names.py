"""The name and id of a task, as they are read from the body of its message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from kombu import Connection

from celery_sqs_heartbeat.leases.message import task_of


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def payload(headers: object, **fields: object) -> str:
    return json.dumps({"body": "W10=", "headers": headers, "properties": {}, **fields})


BOTH = {"task": "shop.pay", "id": "42"}


@pytest.mark.parametrize("encode", [str, encoded], ids=["plain", "base64"])
@pytest.mark.parametrize(
    ("body", "task"),
    [
        pytest.param(payload(BOTH), ("shop.pay", "42"), id="both"),
        pytest.param(payload({"task": "ä\u2028", "id": "42"}), ("ä\u2028", "42"), id="not ASCII"),
        pytest.param(payload({"task": "shop.pay"}), ("shop.pay", None), id="no id"),
        pytest.param(payload({"id": "42"}), (None, "42"), id="no name"),
        pytest.param(payload({"task": {"a": 1}, "id": "42"}), (None, "42"), id="name is no text"),
        pytest.param(payload(None), (None, None), id="headers are null"),
        pytest.param('{"properties": {}}', (None, None), id="without headers"),
        pytest.param(
            json.dumps({"headers": BOTH, "body": "W10="}), (None, None), id="without properties"
        ),
        pytest.param("{}", (None, None), id="an empty object"),
        pytest.param('{"a":' * 100_000, (None, None), id="deep, and right so far"),
    ],
)
def test_name_and_id_are_read_from_a_body_with_and_without_base64(
    encode: Any, body: str, task: tuple[str | None, str | None]
) -> None:
    assert task_of({"Body": encode(body)}) == task


@pytest.mark.parametrize(
    "body",
    [None, 5, "", "hello", "\ud800", "/w==", "null", encoded("5"), encoded("[" * 100_000)],
)
def test_junk_has_neither(body: Any) -> None:
    # tests/fuzz sends more of it.
    assert task_of({"Body": body}) == task_of({}) == (None, None)


@pytest.mark.parametrize("is_encoded", [True, False])
def test_what_kombu_sends_is_read(monkeypatch: pytest.MonkeyPatch, *, is_encoded: bool) -> None:
    sent: list[str] = []
    predefined = {"q": {"url": "https://sqs.us-east-1.amazonaws.com/1/q"}}
    options = {"predefined_queues": predefined, "sqs_base64_encoding": is_encoded}
    with Connection("sqs://k:s@", transport_options=options) as made:
        channel = made.channel()
        client = channel.sqs(queue="q")
        monkeypatch.setattr(
            client, "send_message", lambda **asked: sent.append(asked["MessageBody"])
        )
        made.Producer(channel).publish([[], {}, {}], routing_key="q", headers=BOTH)
    assert task_of({"Body": sent[0]}) == ("shop.pay", "42")
