"""How tests find the release of one message in a proxy's record."""

from __future__ import annotations

from tests.support.recording import Call
from tests.support.releases import CHANGE, Change, changes


def receive(message_id: str, count: int) -> Call:
    message = {
        "MessageId": message_id,
        "ReceiptHandle": f"{message_id}-{count}",
        "Attributes": {"ApproximateReceiveCount": str(count)},
    }
    return Call(
        operation="ReceiveMessage", body={}, answered_at=2.0, answer={"Messages": [message]}
    )


def change(timeouts: dict[str, int], *, done: set[str], forwarded_at: float | None = 5.0) -> Call:
    entries = [
        {"Id": handle, "ReceiptHandle": handle, "VisibilityTimeout": timeout}
        for handle, timeout in timeouts.items()
    ]
    return Call(
        operation=CHANGE,
        body={"Entries": entries},
        forwarded_at=forwarded_at,
        answer={"Successful": [{"Id": handle} for handle in done]},
    )


def test_a_change_is_identified_by_message_and_receive_and_counts_once_confirmed() -> None:
    calls = [
        change({"a-1": 30, "b-1": 30}, done={"a-1", "b-1"}),
        receive("a", 1),
        receive("b", 1),
        receive("a", 2),
        change({"a-2": 10, "b-1": 1}, done={"a-2"}),
        change({"b-1": 1}, done={"b-1"}, forwarded_at=None),
        change({"unknown-1": 1}, done={"unknown-1"}),
    ]
    assert changes(calls) == [
        Change(message_id="a", receive_count=1, held=3.0, timeout=30),
        Change(message_id="b", receive_count=1, held=3.0, timeout=30),
        Change(message_id="a", receive_count=2, held=3.0, timeout=10),
    ]
