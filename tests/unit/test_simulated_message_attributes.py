"""Which message attributes the simulated SQS accepts, and which it refuses.

The rules are those of the SQS Developer Guide, "Message metadata".
"""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import SimulatedServer, SimulatedSqs
from tests.unit.simulating import code_of, create

TEXT = {"DataType": "String", "StringValue": "x"}
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"


def refusal(sqs: Any, **message: Any) -> tuple[str, str]:
    """Return the code and the text of the error that refuses a message."""
    with pytest.raises(ClientError) as refused:
        sqs.send_message(QueueUrl=create(sqs), MessageBody="a", **message)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


@pytest.mark.parametrize(
    "name", ["a", "A-b_9", "trace.id", "9", "aws", "awsome.x", "amazon", "x.AWS.y", "x" * 256]
)
def test_an_attributes_name_is_accepted(sqs: SimulatedSqs, name: str) -> None:
    sqs.send_message(QueueUrl=create(sqs), MessageBody="a", MessageAttributes={name: TEXT})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "non-empty"),
        ("AWS.x", "reserved"),
        ("aws.", "reserved"),
        ("Amazon.x", "reserved"),
        ("aMaZoN.x", "reserved"),
        (".a", "begin"),
        ("a.", "end"),
        ("a..b", "successive"),
        ("a b", "can only contain"),
        ("a\n", "can only contain"),
        ("a/b", "can only contain"),
        ("\0", "can only contain"),
        ("\ud800", "can only contain"),
        ("x" * 257, "256"),
    ],
)
def test_an_attributes_name_is_refused(sqs: SimulatedSqs, name: str, says: str) -> None:
    code, words = refusal(sqs, MessageAttributes={"ok": TEXT, name: TEXT})
    assert code == "InvalidParameterValue"
    assert says in words


@pytest.mark.parametrize(
    "value",
    [
        {"DataType": "String", "StringValue": "\t\r\n é 🎂"},
        {"DataType": "String.json", "StringValue": "{}"},
        {"DataType": "String." + "x" * 249, "StringValue": "x"},
        {"DataType": "Number", "StringValue": "0"},
        {"DataType": "Number", "StringValue": "-1.50"},
        {"DataType": "Number", "StringValue": "+.5"},
        {"DataType": "Number", "StringValue": "5."},
        {"DataType": "Number.float", "StringValue": "1e-7"},
        {"DataType": "Binary", "BinaryValue": b"\0\xff"},
        {"DataType": "Binary.png", "BinaryValue": b"x"},
        {"DataType": "String", "StringValue": "x", "StringListValues": []},
    ],
)
def test_an_attributes_value_is_accepted(sqs: SimulatedSqs, value: dict[str, Any]) -> None:
    url = create(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes={"a": value})
    (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["a"])["Messages"]
    assert message["MessageAttributes"] == {"a": value}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "non-empty message attribute type"),
        ({"StringValue": "x"}, "non-empty message attribute type"),
        ({"DataType": "", "StringValue": "x"}, "non-empty message attribute type"),
        ({"DataType": "Text", "StringValue": "x"}, "supported type prefixes"),
        ({"DataType": "string", "StringValue": "x"}, "supported type prefixes"),
        ({"DataType": "Strings", "StringValue": "x"}, "supported type prefixes"),
        ({"DataType": "x.String", "StringValue": "x"}, "supported type prefixes"),
        ({"DataType": "String." + "x" * 250, "StringValue": "x"}, "256"),
        ({"DataType": "String.\0", "StringValue": "x"}, "Invalid characters"),
        ({"DataType": "String"}, "non-empty value of type 'String'"),
        ({"DataType": "String", "StringValue": ""}, "non-empty value of type 'String'"),
        ({"DataType": "Number.int", "StringValue": ""}, "non-empty value of type 'Number.int'"),
        ({"DataType": "Binary"}, "non-empty value of type 'Binary'"),
        ({"DataType": "Binary", "BinaryValue": b""}, "non-empty value of type 'Binary'"),
        ({"DataType": "Binary", "StringValue": "x"}, "must use field 'Binary'"),
        ({"DataType": "Binary", "StringValue": "x", "BinaryValue": b"x"}, "must use field"),
        ({"DataType": "String", "BinaryValue": b"x"}, "must use field 'String'"),
        ({"DataType": "Number", "BinaryValue": b"1"}, "must use field 'String'"),
        ({"DataType": "String", "StringValue": "\0"}, "Invalid characters"),
        ({"DataType": "String", "StringValue": "\x0b"}, "Invalid characters"),
        ({"DataType": "String", "StringValue": "\ufffe"}, "Invalid characters"),
        ({"DataType": "String", "StringValue": "\ud800"}, "Invalid characters"),
        ({"DataType": "Number", "StringValue": "many"}, "to a number"),
        ({"DataType": "Number", "StringValue": "NaN"}, "to a number"),
        ({"DataType": "Number", "StringValue": "Infinity"}, "to a number"),
        ({"DataType": "Number", "StringValue": "0x10"}, "to a number"),
        ({"DataType": "Number", "StringValue": "1,5"}, "to a number"),
        ({"DataType": "Number", "StringValue": "1_000"}, "to a number"),
        ({"DataType": "Number", "StringValue": "."}, "to a number"),
        ({"DataType": "Number", "StringValue": "٣"}, "to a number"),
        ({"DataType": "Number.int", "StringValue": "x"}, "to a number"),
    ],
)
def test_an_attributes_value_is_refused(
    sqs: SimulatedSqs, value: dict[str, Any], says: str
) -> None:
    code, words = refusal(sqs, MessageAttributes={"a": value})
    assert code == "InvalidParameterValue"
    assert says in words


@pytest.mark.parametrize("lists", [{"StringListValues": ["x"]}, {"BinaryListValues": [b"x"]}])
def test_lists_as_values_are_refused(sqs: SimulatedSqs, lists: dict[str, Any]) -> None:
    code, words = refusal(sqs, MessageAttributes={"a": {**TEXT, **lists}})
    assert code == "AWS.SimpleQueueService.UnsupportedOperation"
    assert "list values in SendMessage operation are not supported" in words


def test_a_message_has_ten_attributes_and_not_eleven(sqs: SimulatedSqs) -> None:
    ten = {f"a{number}": TEXT for number in range(10)}
    sqs.send_message(QueueUrl=create(sqs), MessageBody="a", MessageAttributes=ten)
    code, words = refusal(sqs, MessageAttributes={**ten, "eleventh": TEXT})
    assert code == "InvalidParameterValue"
    assert "[11] exceeds the allowed maximum [10]" in words


def test_a_trace_header_is_accepted(sqs: SimulatedSqs) -> None:
    header = {"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}}
    sqs.send_message(QueueUrl=create(sqs), MessageBody="a", MessageSystemAttributes=header)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"Other": TEXT}, "'Other' is invalid"),
        ({"awstraceheader": TEXT}, "'awstraceheader' is invalid"),
        ({"SenderId": TEXT}, "'SenderId' is invalid"),
        ({"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}}, "must be String"),
        ({"AWSTraceHeader": {"DataType": "Binary", "BinaryValue": b"x"}}, "must be String"),
        ({"AWSTraceHeader": {"DataType": "String"}}, "non-empty value"),
        ({"AWSTraceHeader": {"DataType": "String", "StringValue": ""}}, "non-empty value"),
        ({"AWSTraceHeader": {"DataType": "String", "StringValue": "\0"}}, "Invalid characters"),
    ],
)
def test_another_system_attribute_is_refused(
    sqs: SimulatedSqs, attributes: dict[str, Any], says: str
) -> None:
    code, words = refusal(sqs, MessageSystemAttributes=attributes)
    assert code == "InvalidParameterValue"
    assert says in words


def test_only_the_entry_with_the_wrong_attribute_fails_in_a_batch(sqs: SimulatedSqs) -> None:
    url = create(sqs)
    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "right", "MessageBody": "a", "MessageAttributes": {"a": TEXT}},
            {"Id": "name", "MessageBody": "b", "MessageAttributes": {"\ud800": TEXT}},
            {"Id": "system", "MessageBody": "c", "MessageSystemAttributes": {"Other": TEXT}},
        ],
    )
    assert [entry["Id"] for entry in answer["Successful"]] == ["right"]
    assert {(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]} == {
        ("name", "InvalidParameterValue", True),
        ("system", "InvalidParameterValue", True),
    }


@pytest.mark.parametrize("list_name", ["MessageSystemAttributeNames", "AttributeNames"])
def test_an_unknown_attribute_can_not_be_requested_with_a_message(
    sqs: SimulatedSqs, list_name: str
) -> None:
    url = create(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    for unknown in ("", "Foo", "senderid", "all"):
        request = {"QueueUrl": url, list_name: ["SenderId", unknown]}
        assert code_of(sqs.receive_message, **request) == "InvalidAttributeName"
    (message,) = sqs.receive_message(QueueUrl=url, **{list_name: ["SenderId", "SequenceNumber"]})[
        "Messages"
    ]
    assert set(message["Attributes"]) == {"SenderId"}
    assert message["Body"] == "a"


def test_the_older_parameter_accepts_attributes_of_queues_and_returns_none(
    sqs: SimulatedSqs,
) -> None:
    """SQS API reference, ReceiveMessage: they are among the valid values of AttributeNames."""
    url = create(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    request = {"QueueUrl": url, "MessageSystemAttributeNames": ["VisibilityTimeout"]}
    assert code_of(sqs.receive_message, **request) == "InvalidAttributeName"
    (message,) = sqs.receive_message(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Messages"]
    assert "Attributes" not in message


def test_the_group_of_a_standard_queues_message_comes_without_a_sequence(
    sqs: SimulatedSqs,
) -> None:
    """L test_fair_queue_with_message_group_id."""
    url = create(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="tenant")
    (message,) = sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["MessageGroupId"] == "tenant"
    assert not {"MessageDeduplicationId", "SequenceNumber"} & set(message["Attributes"])


def test_bytes_are_returned_over_http_and_count_as_bytes() -> None:
    """On the wire they are base64, which is a third longer."""
    data = bytes(range(256)) * 3
    value = {"DataType": "Binary", "BinaryValue": data}
    with SimulatedServer() as server:
        client = server.client()
        url = create(client, MaximumMessageSize="1024", VisibilityTimeout="0")
        client.send_message(QueueUrl=url, MessageBody="a" * 200, MessageAttributes={"bytes": value})
        for sqs in (client, server.sqs):
            (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])[
                "Messages"
            ]
            assert message["MessageAttributes"] == {"bytes": value}
        refused = {"empty": {"DataType": "Binary", "BinaryValue": b""}}
        request = {"QueueUrl": url, "MessageBody": "a", "MessageAttributes": refused}
        assert code_of(client.send_message, **request) == "InvalidParameterValue"
