"""Transport options that would make kombu, boto3 or SQS fail are listed before that."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.sqs.options import creation_faults, option_faults

SECRET = "s3cr3t"
ROLE = {"sts_role_arn": "arn:aws:iam::1:role/r"}
URL = "https://sqs.eu-west-1.amazonaws.com/1/q"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"an_option_of_another_version": object()},
        *({"wait_time_seconds": value} for value in (0, 1, 20)),
        *({"polling_interval": value} for value in (None, 0, 0.2, 100)),
        {"queue_name_prefix": ""},
        *({"region": value} for value in (None, "eu-west-1")),
        {"sts_role_arn": "arn:aws:iam::1:role/r", "sts_token_timeout": 900},
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
