"""Calls that no timeout of the client ends, and deletes that SQS refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_sqs_heartbeat.journal.reading import read_journal
from tests.acceptance.record import CHANGE, handles, make_visible
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import drip, fail_entries, first

NewScene = Callable[..., Scene]


def test_leases_in_a_call_whose_answer_drips_are_extended_by_another(
    new_scene: NewScene,
) -> None:
    # Enough time for the second call, even on a slow machine.
    scene = new_scene(attributes={"VisibilityTimeout": "30"})
    # An answer has some 150 bytes: it would take minutes.
    scene.proxy.rule(CHANGE, first(1, drip(1.0)))
    conf = {"sqs_heartbeat_threshold": 25}
    worker = scene.worker("-c", "2", "-P", "threads", conf=conf)
    for key in ("a", "b"):
        scene.send("hold", key)
    scene.wait_for_notes("start", 2)

    def is_extended_again() -> bool:
        # The first call is not answered in full, so it is recorded only at the end.
        calls = scene.proxy.calls(CHANGE)
        later = {e["ReceiptHandle"] for call in calls[1:] if call.status for e in call.entries}
        return {e["ReceiptHandle"] for e in calls[0].entries} <= later if calls else False

    scene.wait_until(is_extended_again)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "b"]
    assert "lease-expired" not in worker.logs()


@pytest.mark.oldest
def test_no_lease_expires_when_a_firewall_forgets_the_connections_of_a_keeper(
    new_scene: NewScene,
) -> None:
    # As with a timeout of 30 s, there are ten seconds for an extension.
    scene = new_scene(attributes={"VisibilityTimeout": "12"})
    conf = {"sqs_heartbeat_threshold": 10}
    worker = scene.worker("-c", "1", "-P", "threads", conf=conf)
    scene.send("hold", "a")

    def extensions() -> int:
        return sum(call.status == 200 for call in scene.calls(CHANGE))

    for count in (2, 4):
        # boto3 has made one of the two before, and has a connection of its own.
        scene.wait_until(lambda count=count: extensions() >= count)
        scene.proxy.forget_connections()
        scene.client.close()
    scene.wait_until(lambda: extensions() >= 6)
    assert scene.late_extensions() == []
    scene.let_end("a")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]
    assert "lease-expired" not in worker.logs()


def test_a_delete_that_is_refused_for_its_handle_is_logged_and_recorded_as_refused(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    refused = fail_entries(code="ReceiptHandleIsInvalid", sender_fault=True)
    scene.proxy.rule("DeleteMessageBatch", refused)
    journal = scene.folder / "journal"
    worker = scene.worker("-c", "1", "-P", "threads", conf={"sqs_heartbeat_journal": str(journal)})
    scene.send("work", "a")
    worker.wait_for_log("delete-abandoned")
    scene.proxy.clear()
    make_visible(scene, handles(scene)[0])
    scene.wait_until_empty()
    worker.process.kill("SIGTERM")
    worker.wait_for_exit()
    (line,) = [line for line in worker.logs().splitlines() if "delete-abandoned" in line]
    assert "WARNING" in line
    assert "SQS answered lost" in line
    assert scene.keys("start") == ["a"]
    kinds = [event["ev"] for event in read_journal(journal)]
    assert kinds.index("delete-abandoned") < kinds.index("message-deleted")
    assert kinds.count("message-deleted") == 1
