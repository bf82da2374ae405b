"""What the simulated SQS accepts and refuses, in process and on a clock that the tests move.

Ranges and errors are those of the SQS API reference. Answers that it does not describe come from
LocalStack's test suite. `tests/conformance/servers` compares the behaviour with other servers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.errors import SqsError
from tests.unit.simulating import FIFO, arn, attributes_of, code_of, create, redrive

DAY = 86_400
LARGEST = 1_048_576
TEXT = {"DataType": "String", "StringValue": "x"}
#: The operations that docs/testing.md names as not modelled, among other words.
NOT_MODELLED = Path("docs/testing.md").read_text().partition("Not modelled:")[2]


def receive(sqs: SimulatedSqs, url: str, count: int = 10, **options: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=count, AttributeNames=["All"], **options
    )
    return list(answer.get("Messages", []))


def bodies(messages: list[dict[str, Any]]) -> str:
    return " ".join(message["Body"] for message in messages)


def fifo(sqs: SimulatedSqs, *names: str, **attributes: str) -> str:
    """Make a FIFO queue of messages: a letter is the group, with a number."""
    url = create(sqs, "work.fifo", **FIFO, **attributes)
    for name in names:
        sqs.send_message(
            QueueUrl=url, MessageBody=name, MessageGroupId=name[0], MessageDeduplicationId=name
        )
    return url


@pytest.mark.parametrize(
    ("name", "is_fifo", "is_accepted"),
    [
        ("a", False, True),
        ("x" * 80, False, True),
        ("x" * 75 + ".fifo", True, True),
        ("x" * 81, False, False),
        ("a.b", False, False),
        ("work.fifo", False, False),
        ("work", True, False),
        ("x" * 76 + ".fifo", True, False),
    ],
)
def test_the_name_of_a_queue_is_accepted_or_refused(
    sqs: SimulatedSqs, name: str, is_fifo: bool, is_accepted: bool
) -> None:
    kind = FIFO if is_fifo else {}
    if is_accepted:
        create(sqs, name, **kind)
    else:
        code = code_of(sqs.create_queue, QueueName=name, Attributes=kind)
        assert code == "InvalidParameterValue"
    assert list(sqs.queues) == [name] * is_accepted


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("VisibilityTimeout", 0, 43_200),
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1_024, LARGEST),
        ("MessageRetentionPeriod", 60, 14 * DAY),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
    ],
)
def test_a_number_within_its_range_is_accepted_and_shown(
    sqs: SimulatedSqs, name: str, low: int, high: int
) -> None:
    url = create(sqs)
    for value in (low, high):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={name: str(value)})
        assert attributes_of(sqs, url)[name] == str(value)
    for wrong in (str(low - 1), str(high + 1), "", "1.5", "many"):
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
        ({"RedrivePolicy": "x"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "{}"}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive("dead")}, "InvalidParameterValue"),
        ({"RedrivePolicy": redrive(arn("none"))}, "InvalidParameterValue"),
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
    request = {"QueueUrl": url, "AttributeNames": ["Visibility"]}
    assert code_of(sqs.get_queue_attributes, **request) == "InvalidAttributeName"


def test_a_fifo_queue_stays_one_and_shows_its_attributes(sqs: SimulatedSqs) -> None:
    """L test_fifo_set_content_based_deduplication_strategy, test_set_unsupported_attribute_fifo."""
    url = fifo(sqs)
    usual = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    assert attributes_of(sqs, url).items() >= {**FIFO, **usual}.items()
    request = {"QueueUrl": url, "Attributes": {"FifoQueue": "false"}}
    with pytest.raises(ClientError, match="Modifying queue type is not supported"):
        sqs.set_queue_attributes(**request)
    request = {"QueueUrl": url, "Attributes": {"DeduplicationScope": "group"}}
    assert code_of(sqs.set_queue_attributes, **request) == "InvalidAttributeValue"


def test_attributes_without_an_effect_are_stored_and_shown_until_unset(sqs: SimulatedSqs) -> None:
    kept = {"Policy": '{"Effect": "Deny"}', "KmsMasterKeyId": "none"}
    url = create(sqs, **kept)
    assert attributes_of(sqs, url).items() >= kept.items()
    sqs.send_message(QueueUrl=url, MessageBody="a")
    assert bodies(receive(sqs, url)) == "a"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "Policy" not in attributes_of(sqs, url)


def test_a_queue_is_made_again_only_with_the_same_attributes(sqs: SimulatedSqs) -> None:
    create(sqs, "dead")
    policy = {"RedrivePolicy": redrive(arn("dead"), "3")}
    url = create(sqs, VisibilityTimeout="7", **policy)
    assert url == create(sqs) == create(sqs, VisibilityTimeout="7", **policy)
    with pytest.raises(ClientError, match="different value for attribute VisibilityTimeout"):
        create(sqs, VisibilityTimeout="8")
    sqs.delete_queue(QueueUrl=url)
    assert create(sqs, VisibilityTimeout="8") == url


def test_queues_are_listed_by_the_page(sqs: SimulatedSqs) -> None:
    urls = [create(sqs, name) for name in "abc"]
    page = sqs.list_queues(MaxResults=2)
    assert page["QueueUrls"] == urls[:2]
    last = sqs.list_queues(MaxResults=2, NextToken=page["NextToken"])
    assert last == {"QueueUrls": urls[2:]}
    assert sqs.list_queues() == {"QueueUrls": urls}
    assert code_of(sqs.list_queues, NextToken="none") == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\0"}, "InvalidMessageContents"),
        ({"MessageBody": "x" * (LARGEST + 1)}, "InvalidParameterValue"),
        ({"MessageBody": "ä" * (LARGEST // 2 + 1)}, "InvalidParameterValue"),
        ({"DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageDeduplicationId": "1"}, "InvalidParameterValue"),
        ({"MessageGroupId": "ä"}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "Text"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {**TEXT, "DataType": "Binary"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a b": TEXT}}, "InvalidParameterValue"),
        ({"MessageAttributes": {str(n): TEXT for n in range(11)}}, "InvalidParameterValue"),
    ],
)
def test_a_message_is_refused(sqs: SimulatedSqs, message: dict[str, Any], code: str) -> None:
    url, given = create(sqs), {"MessageBody": "a", **message}
    assert code_of(sqs.send_message, QueueUrl=url, **given) == code
    # A batch sends its other messages, unless it is too large.
    if len(given["MessageBody"]) < 10:
        good = {"Id": "good", "MessageBody": "\t\r\n é 🎂"}
        answer = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "bad", **given}, good])
        assert [entry["Id"] for entry in answer["Failed"]] == ["bad"]
        assert bodies(receive(sqs, url)) == good["MessageBody"]


def test_a_batch_that_is_too_large_is_refused(sqs: SimulatedSqs) -> None:
    url, half = create(sqs), "x" * (LARGEST // 2 + 1)
    entries = [{"Id": each, "MessageBody": half} for each in "ab"]
    assert code_of(sqs.send_message_batch, QueueUrl=url, Entries=entries) == "BatchRequestTooLong"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("MaxNumberOfMessages", 11, "InvalidParameterValue"),
        ("WaitTimeSeconds", 21, "InvalidParameterValue"),
        ("VisibilityTimeout", -1, "InvalidParameterValue"),
        ("MessageSystemAttributeNames", ["Foo"], "InvalidAttributeName"),
        ("AttributeNames", ["senderid"], "InvalidAttributeName"),
    ],
)
def test_a_receive_is_refused(sqs: SimulatedSqs, name: str, value: Any, code: str) -> None:
    assert code_of(sqs.receive_message, QueueUrl=create(sqs), **{name: value}) == code


def test_only_the_requested_attributes_of_a_message_are_returned(sqs: SimulatedSqs) -> None:
    url = create(sqs, VisibilityTimeout="0")
    given = {
        "trace.id": TEXT,
        "traced": TEXT,
        "tenant": {"DataType": "Binary", "BinaryValue": b"x"},
    }
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=given, MessageGroupId="g")
    for names, shown in (
        ([], set()),
        (["tenant"], {"tenant"}),
        # L test_receive_message_message_attribute_names_filters.
        (["trace.*"], {"trace.id", "traced"}),
        (["..foo"], set()),
        (["All"], set(given)),
        ([".*"], set(given)),
        (["*"], set(given)),
    ):
        (message,) = receive(sqs, url, MessageAttributeNames=names)
        assert message.get("MessageAttributes", {}) == {name: given[name] for name in shown}
    # L test_fair_queue_with_message_group_id.
    assert message["Attributes"]["MessageGroupId"] == "g"
    assert "SequenceNumber" not in message["Attributes"]
    names = ["SenderId", "SequenceNumber"]
    (message,) = sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=names)["Messages"]
    assert set(message["Attributes"]) == {"SenderId"}


def test_a_message_is_gone_when_its_retention_has_passed_since_it_was_sent(
    sqs: SimulatedSqs, clock: FakeClock
) -> None:
    url = create(sqs, MessageRetentionPeriod="100", VisibilityTimeout="30")
    sqs.send_message(QueueUrl=url, MessageBody="a", DelaySeconds=90)
    clock.advance(50)
    sqs.send_message(QueueUrl=url, MessageBody="b")
    clock.advance(49)
    message, _ = receive(sqs, url)
    clock.advance(1)
    # Although it is in flight.
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesNotVisible"] == "1"
    lease = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    code = code_of(sqs.change_message_visibility, **lease, VisibilityTimeout=30)
    assert code == "InvalidParameterValue"
    sqs.delete_message(**lease)
    clock.advance(30)
    assert bodies(receive(sqs, url)) == "b"
    clock.advance(30)
    assert receive(sqs, url) == []


@pytest.mark.parametrize("is_long_poll", [False, True])
@pytest.mark.parametrize("is_fifo", [False, True])
def test_too_many_messages_in_flight(sqs: SimulatedSqs, is_fifo: bool, is_long_poll: bool) -> None:
    """G "Amazon SQS message quotas": only a short poll of a standard queue gets an error."""
    url = fifo(sqs, "a1", "b1", "c1") if is_fifo else create(sqs)
    for body in () if is_fifo else "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    sqs.queue(url).options.in_flight_limit = 2
    (message, _), request = receive(sqs, url), {"QueueUrl": url, "WaitTimeSeconds": is_long_poll}
    if is_fifo or is_long_poll:
        assert sqs.receive_message(**request) == {}
    else:
        assert code_of(sqs.receive_message, **request) == "OverLimit"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert len(receive(sqs, url)) == 1


@pytest.mark.parametrize(
    ("there", "come"),
    [
        ("a1:0 b1:0 a2:0", "a1 a2 b1"),
        ("a1:200 a2:0 b1:0", "b1"),
        # Released or expired at 50: behind the groups that were waiting.
        ("a1:50 a2:50 b1:0", "b1 a1 a2"),
        ("a1:50 b1:60 a2:0 c1:0", "c1 a1 a2 b1"),
    ],
)
def test_groups_come_by_when_their_first_message_became_visible(
    sqs: SimulatedSqs, clock: FakeClock, there: str, come: str
) -> None:
    names, times = zip(*(each.split(":") for each in there.split()), strict=True)
    url = fifo(sqs, *names)
    for message, time in zip(sqs.queue(url).messages.values(), times, strict=True):
        message.visible_at = float(time)
    clock.advance(100)
    assert bodies(receive(sqs, url)) == come


def test_a_long_backlog_of_one_group_hides_the_groups_behind_it(sqs: SimulatedSqs) -> None:
    """G "Avoid large message backlogs with the same message group ID": 120,000 at AWS."""
    url = fifo(sqs, "a1", "a2", "a3", "b1")
    sqs.queue(url).options.scanned_messages = 3
    (first,) = receive(sqs, url, 1)
    assert receive(sqs, url) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(receive(sqs, url)) == "a2 a3 b1"


def test_a_repetition_is_sent_again_after_five_minutes_and_to_other_groups_if_wanted(
    sqs: SimulatedSqs, clock: FakeClock
) -> None:
    for name, scope, count in (("a.fifo", "queue", "2"), ("b.fifo", "messageGroup", "3")):
        url = create(sqs, name, **FIFO, DeduplicationScope=scope)
        group = {"QueueUrl": url, "MessageBody": "m", "MessageDeduplicationId": "1"}
        for _ in range(2):
            sqs.send_message(**group, MessageGroupId="g")
        sqs.send_message(**group, MessageGroupId="h")
        clock.advance(300)
        sqs.send_message(**group, MessageGroupId="g")
        assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == count


def test_a_standard_queue_keeps_its_order_and_delivers_duplicates_on_request(
    sqs: SimulatedSqs,
) -> None:
    url = create(sqs)
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    assert bodies(receive(sqs, url)) == "a b c"
    assert receive(sqs, url) == []
    sqs.queue(url).options.duplicate_rate = 1.0
    assert bodies(receive(sqs, url)) == "a b c"


def test_every_operation_is_modelled_or_refused_and_named_in_the_document(
    sqs: SimulatedSqs,
) -> None:
    operations = botocore.session.Session().get_service_model("sqs").operation_names
    refused = set()
    for operation in operations:
        try:
            sqs.call(operation, {})
        except KeyError:
            pass  # It is modelled, and lacks its parameters.
        except SqsError as error:
            refused.add(str(error))
    assert refused == {
        f"AWS.SimpleQueueService.UnsupportedOperation: {each} is not modelled; see "
        'docs/testing.md, "Not modelled"'
        for each in operations
        if f"`{each}`" in NOT_MODELLED
    }


def test_there_are_no_other_operations(sqs: SimulatedSqs) -> None:
    with pytest.raises(AttributeError, match="has no operation 'fly_away'"):
        sqs.fly_away()
