"""Each row of the table "Not modelled" in docs/testing.md is true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import FakeClock, SimulatedServer, SimulatedSqs
from celery_sqs_heartbeat.testing.operations import NOT_MODELLED, OPERATIONS
from tests.unit.simulating import FIFO, arn, attributes_of, code_of, create, redrive

TABLE = Path("docs/testing.md").read_text().partition("Not modelled:")[2].partition("\n## ")[0]
#: A request of each operation that is not modelled.
ASKED: dict[str, dict[str, Any]] = {
    "AddPermission": {
        "QueueUrl": "work",
        "Label": "x",
        "AWSAccountIds": ["000000000000"],
        "Actions": ["*"],
    },
    "CancelMessageMoveTask": {"TaskHandle": "x"},
    "ListDeadLetterSourceQueues": {"QueueUrl": "work"},
    "ListMessageMoveTasks": {"SourceArn": arn("work")},
    "ListQueueTags": {"QueueUrl": "work"},
    "RemovePermission": {"QueueUrl": "work", "Label": "x"},
    "StartMessageMoveTask": {"SourceArn": arn("work")},
    "TagQueue": {"QueueUrl": "work", "Tags": {"a": "b"}},
    "UntagQueue": {"QueueUrl": "work", "TagKeys": ["a"]},
}


def received(sqs: Any, url: str, **options: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(QueueUrl=url, AttributeNames=["All"], **options)
    return list(answer.get("Messages", []))


def test_every_operation_of_sqs_is_modelled_or_named_in_the_table() -> None:
    model = botocore.session.Session().get_service_model("sqs")
    assert set(model.operation_names) == OPERATIONS | NOT_MODELLED == OPERATIONS | set(ASKED)
    assert not OPERATIONS & NOT_MODELLED
    for operation in NOT_MODELLED:
        assert f"`{operation}`" in TABLE


def test_an_operation_that_is_not_modelled_is_named_as_such() -> None:
    with SimulatedServer() as server:
        client = server.client()
        create(client)
        for method, operation in client.meta.method_to_api_mapping.items():
            if operation not in NOT_MODELLED:
                continue
            for sqs in (client, server.sqs):
                with pytest.raises(ClientError) as refused:
                    getattr(sqs, method)(**ASKED[operation])
                error = refused.value.response["Error"]
                assert error["Code"] == "AWS.SimpleQueueService.UnsupportedOperation"
                text = f'{operation} is not modelled; see docs/testing.md, "Not modelled"'
                assert error["Message"] == text
        with pytest.raises(client.exceptions.UnsupportedOperation):
            client.list_queue_tags(QueueUrl="work")


def test_policies_allow_and_deny_nothing(sqs: SimulatedSqs) -> None:
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    deny = {"Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}
    allow = {"RedriveAllowPolicy": '{"redrivePermission": "denyAll"}'}
    create(sqs, "dead", **allow)
    url = create(sqs, "work", RedrivePolicy=redrive(arn("dead")), **deny)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    assert received(sqs, url)
    assert attributes_of(sqs, url).items() >= deny.items()
    create(sqs, "other", Policy='{"Statement": "no policy of AWS"}')


def test_encryption_is_kept_and_shown(sqs: SimulatedSqs) -> None:
    kept = {"KmsMasterKeyId": "no such key", "KmsDataKeyReusePeriodSeconds": "60"}
    url = create(sqs, **kept)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    assert received(sqs, url)[0]["Body"] == "a"
    assert attributes_of(sqs, url).items() >= kept.items()
    assert "SqsManagedSseEnabled" not in attributes_of(sqs, create(sqs, "other"))


def test_nothing_is_throttled_and_groups_of_a_standard_queue_do_not_count(
    sqs: SimulatedSqs,
) -> None:
    url = create(sqs)
    for number in range(3_000):
        sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="busy")
    sqs.send_message(QueueUrl=url, MessageBody="last", MessageGroupId="quiet")
    bodies = [message["Body"] for message in received(sqs, url, MaxNumberOfMessages=10)]
    assert bodies == [str(number) for number in range(10)]


def test_tags_attempts_and_trace_headers_are_ignored(sqs: SimulatedSqs) -> None:
    tagged = sqs.create_queue(QueueName="a.fifo", Attributes=FIFO, tags={"a": "b"})
    url = tagged["QueueUrl"]
    assert sqs.create_queue(QueueName="a.fifo", Attributes=FIFO, tags={"a": "c"}) == tagged
    header = {"AWSTraceHeader": {"DataType": "String", "StringValue": "none of X-Ray's"}}
    sent = {"MessageGroupId": "g", "MessageDeduplicationId": "1", "MessageSystemAttributes": header}
    sqs.send_message(QueueUrl=url, MessageBody="a", **sent)
    (message,) = received(sqs, url, ReceiveRequestAttemptId="1")
    assert "AWSTraceHeader" not in message["Attributes"]
    assert received(sqs, url, ReceiveRequestAttemptId="1") == []


def test_some_things_are_left_out_of_answers(sqs: SimulatedSqs, clock: FakeClock) -> None:
    dead = create(sqs, "dead")
    url = create(sqs, VisibilityTimeout="1", RedrivePolicy=redrive(arn("dead"), 1))
    value = {"DataType": "String", "StringValue": "x"}
    answer = sqs.send_message(
        QueueUrl=url,
        MessageBody="a",
        MessageAttributes={"a": value},
        MessageSystemAttributes={"AWSTraceHeader": value},
    )
    assert set(answer) == {"MessageId", "MD5OfMessageBody"}
    received(sqs, url)
    clock.advance(1)
    assert received(sqs, url) == []
    (message,) = received(sqs, dead, MessageAttributeNames=["All"])
    assert "MD5OfMessageAttributes" not in message
    assert "DeadLetterQueueSourceArn" not in message["Attributes"]
    assert message["Attributes"]["SenderId"] == "AIDASIMULATED"


@pytest.mark.parametrize("number", ["1" * 40, "1e500", "-1e-500", "007", "1.500"])
def test_a_number_has_any_range_and_precision(sqs: SimulatedSqs, number: str) -> None:
    url = create(sqs)
    value = {"a": {"DataType": "Number", "StringValue": number}}
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=value)
    assert received(sqs, url, MessageAttributeNames=["a"])[0]["MessageAttributes"] == value


@pytest.mark.parametrize("name", ["ä", "attr.1øßä"])
def test_letters_beyond_the_guides_are_refused_in_names(sqs: SimulatedSqs, name: str) -> None:
    value = {name: {"DataType": "String", "StringValue": "x"}}
    request = {"QueueUrl": create(sqs), "MessageBody": "a", "MessageAttributes": value}
    assert code_of(sqs.send_message, **request) == "InvalidParameterValue"


def test_there_is_one_account_in_one_region(sqs: SimulatedSqs) -> None:
    url = create(sqs)
    assert attributes_of(sqs, url)["QueueArn"] == arn("work")
    elsewhere = {"QueueName": "work", "QueueOwnerAWSAccountId": "123456789012"}
    assert sqs.get_queue_url(**elsewhere) == {"QueueUrl": url}
    other = "https://sqs.eu-central-1.amazonaws.com/123456789012/work"
    sqs.send_message(QueueUrl=other, MessageBody="a")
    assert received(sqs, url)


def test_changes_apply_at_once(sqs: SimulatedSqs) -> None:
    url = create(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    assert received(sqs, url)
    assert received(sqs, url)
    sqs.purge_queue(QueueUrl=url)
    assert received(sqs, url) == []
    sqs.delete_queue(QueueUrl=url)
    assert code_of(sqs.send_message, QueueUrl=url, MessageBody="a") == "NonExistentQueue"


def test_a_standard_queue_keeps_its_order_and_delivers_duplicates_on_request(
    sqs: SimulatedSqs,
) -> None:
    url = create(sqs)
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    assert [m["Body"] for m in received(sqs, url, MaxNumberOfMessages=10)] == ["a", "b", "c"]
    assert received(sqs, url, MaxNumberOfMessages=10) == []
    sqs.queue("work").options.duplicate_rate = 1.0
    assert len(received(sqs, url, MaxNumberOfMessages=10)) == 3
