"""What the simulated SQS accepts and refuses, and what happens to old messages.

Ranges and errors are those of the SQS API reference. Answers that it does not describe come from
LocalStack's test suite.
"""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.testing import FakeClock, SimulatedServer, SimulatedSqs
from tests.unit.simulating import FIFO, arn, attributes_of, code_of, create, redrive

DAY = 86_400
LARGEST = 1_048_576


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 80])
def test_a_standard_queues_name_is_accepted(sqs: SimulatedSqs, name: str) -> None:
    create(sqs, name)


@pytest.mark.parametrize("name", ["", "x" * 81, "a.b", "a b", "ä", "a/b", "work.fifo"])
def test_a_standard_queues_name_is_refused(sqs: SimulatedSqs, name: str) -> None:
    assert code_of(sqs.create_queue, QueueName=name) == "InvalidParameterValue"
    assert not sqs.queues


@pytest.mark.parametrize("name", ["work", ".fifo", "x" * 76 + ".fifo", "a.b.fifo"])
def test_a_fifo_queues_name_is_refused(sqs: SimulatedSqs, name: str) -> None:
    assert code_of(sqs.create_queue, QueueName=name, Attributes=FIFO) == "InvalidParameterValue"
    create(sqs, "x" * 75 + ".fifo", **FIFO)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("VisibilityTimeout", 0, 43_200),
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1_024, LARGEST),
        ("MessageRetentionPeriod", 60, 14 * DAY),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("KmsDataKeyReusePeriodSeconds", 60, DAY),
    ],
)
def test_a_number_within_its_range_is_accepted_and_shown(
    sqs: SimulatedSqs, name: str, low: int, high: int
) -> None:
    url = create(sqs)
    for value in (low, high):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={name: str(value)})
        assert attributes_of(sqs, url)[name] == str(value)
    for wrong in (str(low - 1), str(high + 1), "", "1.5", "many", "٣"):
        request = {"QueueUrl": url, "Attributes": {name: wrong}}
        assert code_of(sqs.set_queue_attributes, **request) == "InvalidAttributeValue"
    assert attributes_of(sqs, url)[name] == str(high)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"Visibility": "30"}, "InvalidAttributeName"),
        ({"QueueArn": "x"}, "InvalidAttributeName"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"FifoQueue": "false"}, "InvalidAttributeName"),
        ({"SqsManagedSseEnabled": "yes"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "x"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "{}"}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive("dead")}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive(arn("none"))}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive(arn("dead"), 0)}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive(arn("dead"), 1001)}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive(arn("dead.fifo"))}, "InvalidParameterValue"),
    ],
)
def test_an_attribute_is_refused_and_changes_nothing(
    sqs: SimulatedSqs, attributes: dict[str, str], code: str
) -> None:
    create(sqs, "dead")
    create(sqs, "dead.fifo", **FIFO)
    given = {"VisibilityTimeout": "7", **attributes}
    assert code_of(sqs.create_queue, QueueName="work", Attributes=given) == code
    assert "work" not in sqs.queues
    url = create(sqs)
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes=given) == code
    assert attributes_of(sqs, url)["VisibilityTimeout"] == "30"


def test_attributes_without_an_effect_are_stored_and_shown(sqs: SimulatedSqs) -> None:
    kept = {"Policy": "{}", "KmsMasterKeyId": "alias/aws/sqs", "SqsManagedSseEnabled": "false"}
    assert attributes_of(sqs, create(sqs, **kept)).items() >= kept.items()


def test_an_unknown_attribute_is_not_shown(sqs: SimulatedSqs) -> None:
    request = {"QueueUrl": create(sqs), "AttributeNames": ["Visibility"]}
    assert code_of(sqs.get_queue_attributes, **request) == "InvalidAttributeName"


def test_a_queue_is_made_again_only_with_the_same_attributes(
    sqs: SimulatedSqs, clock: FakeClock
) -> None:
    create(sqs, "dead")
    policy = {"RedrivePolicy": redrive(arn("dead"), "3")}
    url = create(sqs, VisibilityTimeout="7", **policy)
    assert url == create(sqs) == create(sqs, VisibilityTimeout="7", **policy)
    given = {"VisibilityTimeout": "8"}
    assert code_of(sqs.create_queue, QueueName="work", Attributes=given) == "QueueAlreadyExists"
    sqs.delete_queue(QueueUrl=url)
    assert code_of(sqs.create_queue, QueueName="work") == "QueueDeletedRecently"
    clock.advance(60)
    assert create(sqs) == url


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\0"}, "InvalidMessageContents"),
        ({"MessageBody": "\ufffe"}, "InvalidMessageContents"),
        ({"MessageBody": "x" * (LARGEST + 1)}, "InvalidParameterValue"),
        ({"MessageBody": "ä" * (LARGEST // 2 + 1)}, "InvalidParameterValue"),
        ({"MessageBody": "a", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "a", "MessageDeduplicationId": "1"}, "InvalidParameterValue"),
        ({"MessageBody": "a", "MessageGroupId": "ä"}, "InvalidParameterValue"),
        (
            {"MessageBody": "a", "MessageAttributes": {"a": {"DataType": "Text"}}},
            "InvalidParameterValue",
        ),
        (
            {
                "MessageBody": "a",
                "MessageAttributes": {
                    str(n): {"DataType": "String", "StringValue": "x"} for n in range(11)
                },
            },
            "InvalidParameterValue",
        ),
    ],
)
def test_a_message_is_refused(sqs: SimulatedSqs, message: dict[str, Any], code: str) -> None:
    url = create(sqs)
    assert code_of(sqs.send_message, QueueUrl=url, **message) == code
    sqs.send_message(QueueUrl=url, MessageBody="\t\r\n é 🎂" + "x" * 1_000_000)


def test_a_batch_that_is_too_large_is_refused(sqs: SimulatedSqs) -> None:
    url, half = create(sqs), "x" * (LARGEST // 2 + 1)
    entries = [{"Id": each, "MessageBody": half} for each in "ab"]
    assert code_of(sqs.send_message_batch, QueueUrl=url, Entries=entries) == "BatchRequestTooLong"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MaxNumberOfMessages", 0),
        ("MaxNumberOfMessages", 11),
        ("WaitTimeSeconds", -1),
        ("WaitTimeSeconds", 21),
        ("VisibilityTimeout", -1),
        ("VisibilityTimeout", 43_201),
    ],
)
def test_a_receive_with_a_parameter_out_of_range_is_refused(
    sqs: SimulatedSqs, name: str, value: int
) -> None:
    code = code_of(sqs.receive_message, QueueUrl=create(sqs), **{name: value})
    assert code == "InvalidParameterValue"


def test_a_message_is_gone_when_its_retention_has_passed_since_it_was_sent(
    sqs: SimulatedSqs, clock: FakeClock
) -> None:
    url = create(sqs, MessageRetentionPeriod="100", VisibilityTimeout="30")
    sqs.send_message(QueueUrl=url, MessageBody="a", DelaySeconds=90)
    clock.advance(50)
    sqs.send_message(QueueUrl=url, MessageBody="b")
    clock.advance(49)
    (message, _) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    clock.advance(1)
    # Although it is in flight.
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesNotVisible"] == "1"
    lease = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    code = code_of(sqs.change_message_visibility, **lease, VisibilityTimeout=30)
    assert code == "InvalidParameterValue"
    sqs.delete_message(**lease)
    clock.advance(30)
    (left,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert left["Body"] == "b"
    clock.advance(30)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_only_dead_letters_of_a_fifo_queue_restart_their_retention(
    sqs: SimulatedSqs, clock: FakeClock, suffix: str
) -> None:
    kind = {**FIFO, "ContentBasedDeduplication": "true"} if suffix else {}
    dead = create(sqs, f"dead{suffix}", MessageRetentionPeriod="100", **kind)
    policy = redrive(arn(f"dead{suffix}"), 1)
    url = create(sqs, f"work{suffix}", VisibilityTimeout="10", RedrivePolicy=policy, **kind)
    group = {"MessageGroupId": "g"} if suffix else {}
    sqs.send_message(QueueUrl=url, MessageBody="a", **group)
    for _ in range(2):
        sqs.receive_message(QueueUrl=url)
        clock.advance(60)
    found = "Messages" in sqs.receive_message(QueueUrl=dead)
    assert found is bool(suffix)


def test_a_queues_own_delay_and_wait_apply_unless_a_call_sets_them(
    sqs: SimulatedSqs, clock: FakeClock
) -> None:
    url = create(sqs, DelaySeconds="5")
    sqs.send_message(QueueUrl=url, MessageBody="a")
    sqs.send_message(QueueUrl=url, MessageBody="b", DelaySeconds=0)
    (message,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert message["Body"] == "b"
    clock.advance(5)
    assert sqs.receive_message(QueueUrl=url)["Messages"]
    with SimulatedServer() as server:
        client = server.client()
        polled = create(client, ReceiveMessageWaitTimeSeconds="20")
        client.send_message(QueueUrl=polled, MessageBody="a", DelaySeconds=1)
        assert client.receive_message(QueueUrl=polled)["Messages"]


def test_only_the_requested_attributes_of_a_message_are_returned(
    sqs: SimulatedSqs,
) -> None:
    url = create(sqs, VisibilityTimeout="0")
    value = {"DataType": "String", "StringValue": "x"}
    attributes = {"trace.id": value, "traced": value, "tenant": value}
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    for asked, shown in (
        ([], set()),
        (["tenant"], {"tenant"}),
        # L test_receive_message_message_attribute_names_filters.
        (["trace.*"], {"trace.id", "traced"}),
        (["AWS.", "..foo"], set()),
        (["All"], set(attributes)),
        ([".*"], set(attributes)),
        (["*"], set(attributes)),
    ):
        (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=asked)["Messages"]
        assert set(message.get("MessageAttributes", ())) == shown


def test_deduplication_may_be_by_group(sqs: SimulatedSqs) -> None:
    by_group = {**FIFO, "DeduplicationScope": "messageGroup"}
    for name, attributes, count in (("a.fifo", FIFO, "1"), ("b.fifo", by_group, "2")):
        url = create(sqs, name, **attributes)
        for group in "xyx":
            sqs.send_message(
                QueueUrl=url, MessageBody="m", MessageGroupId=group, MessageDeduplicationId="1"
            )
        assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == count


def test_a_second_purge_within_a_minute_is_refused(sqs: SimulatedSqs, clock: FakeClock) -> None:
    url = create(sqs)
    sqs.purge_queue(QueueUrl=url)
    assert code_of(sqs.purge_queue, QueueUrl=url) == "PurgeQueueInProgress"
    clock.advance(60)
    sqs.purge_queue(QueueUrl=url)


def test_queues_are_listed_by_the_page(sqs: SimulatedSqs) -> None:
    urls = [create(sqs, name) for name in "abc"]
    page = sqs.list_queues(MaxResults=2)
    assert page["QueueUrls"] == urls[:2]
    last = sqs.list_queues(MaxResults=2, NextToken=page["NextToken"])
    assert last == {"QueueUrls": urls[2:]}
    assert sqs.list_queues() == {"QueueUrls": urls}


def test_boto3_turns_the_errors_into_the_exceptions_of_its_model() -> None:
    with SimulatedServer() as server:
        client = server.client()
        create(client)
        with pytest.raises(client.exceptions.QueueNameExists):
            create(client, VisibilityTimeout="7")
        with pytest.raises(client.exceptions.InvalidAttributeName):
            create(client, "other", Visibility="7")
        with pytest.raises(client.exceptions.InvalidAttributeValue):
            create(client, "other", VisibilityTimeout="x")
        client.delete_queue(QueueUrl=f"{server.url}/work")
        with pytest.raises(client.exceptions.QueueDeletedRecently):
            create(client)
        with pytest.raises(client.exceptions.UnsupportedOperation):
            client.tag_queue(QueueUrl=f"{server.url}/work", Tags={})
