"""When a worker counts as broken."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.transport.broken_worker import BROKEN_AFTER, BrokenWorkerDetector

ERROR = LookupError("no such pool")


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        pytest.param(["a", "b", "c"], 1, id="different messages in a row"),
        pytest.param(["a", "b", "c", "d", "e"], 1, id="it ends once"),
        pytest.param(["a", "b"], 0, id="two may fail at once"),
        pytest.param(["a"] * 20, 0, id="one message again and again"),
        pytest.param(["a", "b"] * 20, 0, id="two of them"),
        pytest.param(["a", "b", "", "c", "d", "", "e", "f"], 0, id="others succeed in between"),
        pytest.param(["a", "", "a", "b", "c"], 1, id="no message succeeds any more"),
    ],
)
def test_failures_of_different_messages_in_a_row_mean_a_broken_worker(
    steps: list[str], ends: int
) -> None:
    detector, ended = BrokenWorkerDetector(), []
    detector.end = ended.append
    for step in steps:
        if step:
            detector.failed("delivered", step, ERROR)
        else:
            detector.worked("delivered")
    assert ended == [ERROR] * ends
    assert detector.is_found is bool(ends)


def test_starts_and_deliveries_are_counted_separately() -> None:
    detector = BrokenWorkerDetector()
    for number in range(BROKEN_AFTER - 1):
        detector.failed("started", number, ERROR)
        # They were delivered each time without an error.
        detector.worked("delivered")
    with pytest.raises(LookupError, match="no such pool"):
        detector.failed("started", "another", ERROR)


def test_the_error_names_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    detector = BrokenWorkerDetector()
    detector.end = lambda error: None
    for number in range(BROKEN_AFTER):
        detector.failed("given to the pool", number, ERROR)
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert "3 different messages in a row could not be given to the pool" in record.message
    assert "LookupError: no such pool" in record.message
