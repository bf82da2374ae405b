"""Attributes of simulated queues that are not just numbers: policies, encryption, throughput.

The rules come from the SQS API reference, CreateQueue. The errors are those that AWS returned to
LocalStack's test suite ("L") or in public reports.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import SimulatedSqs
from tests.unit.simulating import FIFO, arn, attributes_of, code_of, create, redrive

BY_GROUP = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
KEY = "alias/aws/sqs"


def allow(permission: str, *sources: str) -> str:
    policy: dict[str, Any] = {"redrivePermission": permission}
    return json.dumps({**policy, "sourceQueueArns": sources} if sources else policy)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Policy", "x", "InvalidAttributeValue"),
        ("Policy", "[]", "InvalidAttributeValue"),
        ("Policy", '"x"', "InvalidAttributeValue"),
        pytest.param("Policy", "[" * 100_000, "InvalidAttributeValue", id="deep"),
        ("RedrivePolicy", "x", "InvalidAttributeValue"),
        ("RedrivePolicy", "[]", "InvalidAttributeValue"),
        ("RedrivePolicy", redrive("dead"), "InvalidParameterValue"),
        ("RedriveAllowPolicy", "x", "InvalidAttributeValue"),
        ("RedriveAllowPolicy", "1", "InvalidAttributeValue"),
        ("RedriveAllowPolicy", allow("some"), "InvalidAttributeValue"),
        ("RedriveAllowPolicy", '{"sourceQueueArns": "x"}', "InvalidAttributeValue"),
        ("RedriveAllowPolicy", allow("allowAll", arn("a")), "InvalidParameterValue"),
        ("RedriveAllowPolicy", allow("denyAll", arn("a")), "InvalidParameterValue"),
        ("RedriveAllowPolicy", allow("byQueue"), "InvalidParameterValue"),
        ("RedriveAllowPolicy", allow("byQueue", *map(arn, "abcdefghijk")), "InvalidParameterValue"),
    ],
)
def test_a_policy_is_refused_and_changes_nothing(
    sqs: SimulatedSqs, name: str, value: str, code: str
) -> None:
    given = {"VisibilityTimeout": "7", name: value}
    assert code_of(sqs.create_queue, QueueName="work", Attributes=given) == code
    assert not sqs.queues
    url = create(sqs)
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes=given) == code
    # And not as an attribute for which the queue has another value.
    assert code_of(sqs.create_queue, QueueName="work", Attributes=given) == code
    shown = attributes_of(sqs, url)
    assert shown["VisibilityTimeout"] == "30"
    assert name not in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Policy", '{"Version": "2012-10-17", "Statement": []}'),
        ("RedriveAllowPolicy", allow("allowAll")),
        ("RedriveAllowPolicy", allow("denyAll")),
        ("RedriveAllowPolicy", allow("byQueue", *map(arn, "abcdefghij"))),
    ],
)
def test_a_policy_is_accepted_and_removed_by_an_empty_one(
    sqs: SimulatedSqs, name: str, value: str
) -> None:
    url = create(sqs, **{name: value})
    assert attributes_of(sqs, url)[name] == value
    assert create(sqs, **{name: value}) == url
    sqs.set_queue_attributes(QueueUrl=url, Attributes={name: ""})
    assert name not in attributes_of(sqs, url)
    assert create(sqs, **{name: ""}) == url


def test_a_queue_has_one_kind_of_encryption(sqs: SimulatedSqs) -> None:
    """L test_sse_kms_and_sqs_are_mutually_exclusive, test_set_queue_attributes_default_values."""
    both = {"KmsMasterKeyId": KEY, "SqsManagedSseEnabled": "true"}
    request: dict[str, Any] = {"QueueName": "work", "Attributes": both}
    assert code_of(sqs.create_queue, **request) == "InvalidAttributeName"
    url = create(sqs, SqsManagedSseEnabled="true")
    request = {"QueueUrl": url, "Attributes": both}
    assert code_of(sqs.set_queue_attributes, **request) == "InvalidAttributeName"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": KEY})
    shown = attributes_of(sqs, url)
    assert (shown["KmsMasterKeyId"], shown["SqsManagedSseEnabled"]) == (KEY, "false")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": ""})
    assert "KmsMasterKeyId" not in attributes_of(sqs, url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**both, "SqsManagedSseEnabled": "false"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**both, "KmsMasterKeyId": ""})
    shown = attributes_of(sqs, url)
    assert "KmsMasterKeyId" not in shown
    assert shown["SqsManagedSseEnabled"] == "true"


def test_a_limit_by_group_needs_deduplication_by_group(sqs: SimulatedSqs) -> None:
    limit = {"FifoThroughputLimit": "perMessageGroupId"}
    request: dict[str, Any] = {"QueueName": "a.fifo", "Attributes": {**FIFO, **limit}}
    assert code_of(sqs.create_queue, **request) == "InvalidAttributeValue"
    assert not sqs.queues
    url = create(sqs, "a.fifo", **FIFO)
    request = {"QueueUrl": url, "Attributes": limit}
    assert code_of(sqs.set_queue_attributes, **request) == "InvalidAttributeValue"
    sqs.set_queue_attributes(QueueUrl=url, Attributes=BY_GROUP)
    request = {"QueueUrl": url, "Attributes": {"DeduplicationScope": "queue"}}
    assert code_of(sqs.set_queue_attributes, **request) == "InvalidAttributeValue"
    assert attributes_of(sqs, url).items() >= BY_GROUP.items()
    # Also one after the other, in the allowed order.
    other = create(sqs, "b.fifo", **FIFO)
    for name, value in BY_GROUP.items():
        sqs.set_queue_attributes(QueueUrl=other, Attributes={name: value})
    assert attributes_of(sqs, other).items() >= BY_GROUP.items()


def test_a_fifo_queue_shows_its_scope_and_limit_though_they_were_not_set(
    sqs: SimulatedSqs,
) -> None:
    """L test_fifo_set_content_based_deduplication_strategy."""
    usual = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    url = create(sqs, "a.fifo", **FIFO)
    assert attributes_of(sqs, url).items() >= usual.items()
    assert create(sqs, "a.fifo", **FIFO, **usual) == url
    assert code_of(sqs.create_queue, QueueName="a.fifo", Attributes={**FIFO, **BY_GROUP}) == (
        "QueueAlreadyExists"
    )


@pytest.mark.parametrize(
    ("attributes", "code", "says"),
    [
        ({"DeduplicationScope": "queue"}, "InvalidAttributeName", "only when FifoQueue is set"),
        ({"FifoThroughputLimit": "perQueue"}, "InvalidAttributeName", "only when FifoQueue is set"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName", "Unknown Attribute"),
        ({"Visibility": "30"}, "InvalidAttributeName", "Unknown Attribute Visibility."),
    ],
)
def test_a_standard_queue_refuses_fifo_and_unknown_attributes_alike(
    sqs: SimulatedSqs, attributes: dict[str, str], code: str, says: str
) -> None:
    """L test_create_standard_queue_with_fifo_attribute_raises_error."""
    for _ in range(2):
        with pytest.raises(ClientError, match=says) as refused:
            sqs.create_queue(QueueName="work", Attributes=attributes)
        assert refused.value.response["Error"]["Code"] == code
        create(sqs)


def test_a_queue_stays_fifo(sqs: SimulatedSqs) -> None:
    """L test_set_unsupported_attribute_fifo."""
    url = create(sqs, "a.fifo", **FIFO)
    sqs.set_queue_attributes(QueueUrl=url, Attributes=FIFO)
    request = {"QueueUrl": url, "Attributes": {"FifoQueue": "false"}}
    with pytest.raises(ClientError, match="Modifying queue type is not supported"):
        sqs.set_queue_attributes(**request)
    assert code_of(sqs.set_queue_attributes, **request) == "InvalidAttributeValue"


@pytest.mark.parametrize("unknown", ["", "Visibility", "all", "SenderId"])
def test_an_attribute_is_not_shown_that_queues_do_not_have(sqs: SimulatedSqs, unknown: str) -> None:
    request = {"QueueUrl": create(sqs), "AttributeNames": ["QueueArn", unknown]}
    assert code_of(sqs.get_queue_attributes, **request) == "InvalidAttributeName"
