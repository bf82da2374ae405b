"""A failed test shows what its reader needs to investigate it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.describing import describe_calls, rerun_command
from tests.support.markdown import ROOT
from tests.support.recording import Call

MESSAGE = {
    "MessageId": "0123456789",
    "ReceiptHandle": "h1",
    "Attributes": {"ApproximateReceiveCount": "2"},
}
FAILS = """
def test_that_fails(new_scene):
    scene = new_scene()
    scene.send("work", "a")
    scene.worker("-c", "1", "-P", "solo")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("end") == ["b"]
"""


def call(operation: str, at: float, **more: Any) -> Call:
    fields: dict[str, Any] = {"body": {}, "answered_at": at + 0.5, "status": 200, **more}
    return Call(operation=operation, started_at=at, **fields)


def test_calls_are_described_by_message_and_receive() -> None:
    entries = [{"Id": "0", "ReceiptHandle": "h1", "VisibilityTimeout": 30}]
    deletes = [{"Id": "0", "ReceiptHandle": "h1"}, {"Id": "1", "ReceiptHandle": "a-long-handle"}]
    described = describe_calls(
        [
            call("ReceiveMessage", 10, answer={"Messages": [MESSAGE]}),
            call("ReceiveMessage", 10.5, answer={}),
            call("ChangeMessageVisibilityBatch", 11, body={"Entries": entries}),
            call(
                "DeleteMessageBatch",
                12,
                body={"Entries": deletes},
                answer={"Failed": [{"Id": "1", "Code": "ReceiptHandleIsInvalid"}]},
            ),
            call("ReceiveMessage", 13, status=None, answered_at=None),
        ]
    )
    assert described.splitlines() == [
        "    0.000 ReceiveMessage: 01234567, receive 2 (200 after 0.500 s)",
        "    1.000 ChangeMessageVisibilityBatch: 01234567, receive 2, for 30 s (200 after 0.500 s)",
        "    2.000 DeleteMessageBatch: 01234567, receive 2 (200 after 0.500 s)",
        "    2.000 DeleteMessageBatch: handle a-long-h: ReceiptHandleIsInvalid (200 after 0.500 s)",
        "    3.000 ReceiveMessage: (not answered)",
    ]


def test_a_test_is_run_again_by_its_id() -> None:
    command = rerun_command("tests/unit/test_x.py::test_y[a b]")
    assert command.endswith(" -m pytest 'tests/unit/test_x.py::test_y[a b]'")


def test_a_failed_test_of_a_worker_shows_log_calls_and_command(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FAILS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    command += ["-p", "tests.conftest", "-p", "tests.acceptance.conftest", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Task tests.acceptance.proj.work" in done.stdout.partition("Log of worker1")[2]
    assert "receive 1" in done.stdout.partition("Calls at SQS")[2]
    assert "-m pytest" in done.stdout.partition("Run it again")[2]
