"""A queue's configuration survives the link. The error for other values does not show them."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import UNSIGNED
from hypothesis import given

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.link.frames import LineReader
from celery_sqs_heartbeat.link.messages import from_plain, reach, read_config, to_plain
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from tests.fuzz.shapes import FUZZ
from tests.unit.link.pairs import pack
from tests.unit.link.test_frames import plain


def config(**options: Any) -> BrokerConfig:
    known = {
        "endpoint_url": "http://localhost:9324",
        "region": "eu-west-1",
        "use_ssl": False,
        "access_key": "key",
        "secret_key": "secret",
    }
    return BrokerConfig(**{**known, **options})


def test_a_keeper_reaches_a_queue_as_its_worker_does() -> None:
    given_config = config(
        client_config={"signature_version": UNSIGNED, "tcp_keepalive": True, "retries": (1, [2])},
        predefined={"work": {"url": "https://sqs/1/work", "backoff_tasks": ["a"]}},
        sts={"sts_role_arn": None, "sts_token_timeout": 900.5},
    )
    (said,) = LineReader().feed(pack([reach(given_config, "https://sqs/1/q", 10.0, "https://a")]))
    kind, queue_url, threshold, address, plain_config = said
    assert (kind, queue_url, threshold, address) == ("reach", "https://sqs/1/q", 10.0, "https://a")
    read = read_config(plain_config)
    assert read == given_config
    assert read.client_config["signature_version"] is UNSIGNED
    assert isinstance(read.client_config["retries"], tuple)


@FUZZ
@given(value=plain)
def test_plain_values_survive_unchanged(value: Any) -> None:
    assert from_plain(to_plain(value, "it")) == value


@pytest.mark.parametrize("value", [b"topsecret", {"topsecret"}, object])
def test_an_option_that_is_not_plain_is_named_without_its_value(value: object) -> None:
    faulty = config(predefined={"work": {"session": ["plain", value]}})
    with pytest.raises(ConfigurationError) as refused:
        reach(faulty, "https://sqs/1/q", 10.0, "https://sqs/1/q")
    text = str(refused.value)
    assert "predefined['work']['session']" in text
    assert type(value).__name__ in text
    assert "topsecret" not in text
    assert "use strings, numbers, lists and dicts" in text
