"""The smallest policy for queues that are known by their ARN or their URL."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.cli.iam.iam_policy import CONSUME, SEND, QueuePlace, policy

ID = "123456789012"
HERE = QueuePlace(name="q", region="eu-west-3", account=ID)
OUR_KEY = f"arn:aws:kms:eu-west-3:{ID}:key"
FIND_OR_CREATE = {"Create": ("sqs:CreateQueue",), "Find": ("sqs:ListQueues",)}


def statements(made: dict[str, Any]) -> dict[str, Any]:
    return {each["Sid"]: each for each in made["Statement"]}


@pytest.mark.parametrize(
    ("url", "region", "account", "name"),
    [
        (f"https://sqs.eu-west-3.amazonaws.com/{ID}/q", "eu-west-3", ID, "q"),
        (f"https://eu-west-3.queue.amazonaws.com/{ID}/q", "eu-west-3", ID, "q"),
        (f"https://queue.amazonaws.com/{ID}/q", "us-east-1", ID, "q"),
        (
            f"https://vpce-0a-b1.sqs.us-gov-west-1.vpce.amazonaws.com/{ID}/q.fifo",
            "us-gov-west-1",
            ID,
            "q.fifo",
        ),
        (f"https://sqs.cn-north-1.amazonaws.com.cn/{ID}/q", "cn-north-1", ID, "q"),
        ("http://localhost:9324/queue/q", None, None, "q"),
        ("http://127.0.0.1:9324/q", None, None, "q"),
    ],
)
def test_a_url_is_read(url: str, region: str | None, account: str | None, name: str) -> None:
    assert QueuePlace.of_url(url) == QueuePlace(name=name, region=region, account=account)


@pytest.mark.parametrize(
    ("journal", "arn"),
    [
        (None, None),
        ("/var/journal", None),
        ("s3://logs/sqs/", "arn:aws:s3:::logs/sqs/*"),
        ("s3://logs", "arn:aws:s3:::logs/*"),
    ],
)
def test_a_worker_may_write_its_journal_on_s3_and_a_producer_may_not(
    journal: str | None, arn: str | None
) -> None:
    for is_producer in (False, True):
        made = policy([HERE], is_producer=is_producer, is_predefined=True, journal=journal)
        statement = statements(made).get("Journal", {})
        assert statement.get("Resource") == (None if is_producer else arn)
        assert statement.get("Action") in (None, ["s3:PutObject"])


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:sqs:eu-west-3:123456789012:q",
        "arn:aws-cn:sqs:cn-north-1:123456789012:q",
        "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:q.fifo",
    ],
)
def test_an_arn_is_read_and_rebuilt(arn: str) -> None:
    assert QueuePlace.of_arn(arn).arn == arn


@pytest.mark.parametrize(
    ("is_producer", "is_predefined", "found"),
    [
        (False, True, {"Consume": CONSUME}),
        (False, False, {"Consume": CONSUME, **FIND_OR_CREATE}),
        (True, True, {"Send": SEND}),
        (True, False, {"Send": SEND, **FIND_OR_CREATE}),
    ],
)
def test_the_permissions_of_workers_and_producers(
    is_producer: bool, is_predefined: bool, found: dict[str, Any]
) -> None:
    made = policy([HERE], is_producer=is_producer, is_predefined=is_predefined)
    assert {sid: tuple(each["Action"]) for sid, each in statements(made).items()} == found
    assert {each["Effect"] for each in made["Statement"]} == {"Allow"}


def test_resources_are_only_the_queues() -> None:
    made = policy(
        [HERE, QueuePlace(name="a", region="eu-west-3", account=ID), HERE],
        is_producer=False,
        is_predefined=False,
    )
    arns = ["arn:aws:sqs:eu-west-3:123456789012:a", "arn:aws:sqs:eu-west-3:123456789012:q"]
    resources = {sid: each["Resource"] for sid, each in statements(made).items()}
    assert resources == {"Consume": arns, "Create": arns, "Find": "*"}


@pytest.mark.parametrize(
    ("key", "resource", "alias"),
    [
        ("arn:aws:kms:eu-west-3:1:key/ab", "arn:aws:kms:eu-west-3:1:key/ab", None),
        ("ab-12", f"{OUR_KEY}/ab-12", None),
        ("alias/ours", f"{OUR_KEY}/*", "alias/ours"),
        (f"arn:aws:kms:eu-west-3:{ID}:alias/ours", f"{OUR_KEY}/*", "alias/ours"),
    ],
)
def test_a_key_needs_permissions_too(key: str, resource: str, alias: str | None) -> None:
    made = policy([HERE], is_producer=True, is_predefined=True, keys={key: HERE})
    statement = statements(made)["Key1"]
    assert statement["Resource"] == resource
    assert statement["Action"] == ["kms:GenerateDataKey", "kms:Decrypt"]
    condition = statement.get("Condition", {}).get("ForAnyValue:StringEquals", {})
    assert condition.get("kms:ResourceAliases") == alias
