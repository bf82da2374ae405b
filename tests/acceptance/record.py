"""What the proxy recorded about one queue's messages."""

from __future__ import annotations

from collections import Counter

from tests.acceptance.scene import LONG, Scene
from tests.support.recording import CHANGE, Call, confirmed

#: The longest delay of a release, in seconds: the workers' polls here wait that long.
DEAD_POLL = 2


def receives(scene: Scene) -> list[str]:
    """Return the ids of the messages received, in order."""
    return [message for message, _ in _received(scene)]


def handles(scene: Scene) -> list[str]:
    """Return the receipt handles of the messages received, in order."""
    return [handle for _, handle in _received(scene)]


def _received(scene: Scene) -> list[tuple[str, str]]:
    return [
        (message["MessageId"], message["ReceiptHandle"])
        for call in _of_queue(scene, "ReceiveMessage")
        for message in (call.answer or {}).get("Messages", ())
    ]


def deleted(scene: Scene) -> set[str]:
    """Return the ids of the messages whose delete was requested."""
    ids = {handle: message for message, handle in _received(scene)}
    calls = _of_queue(scene, "DeleteMessageBatch")
    return {ids[entry["ReceiptHandle"]] for call in calls for entry in call.entries}


def release_calls(scene: Scene) -> list[Call]:
    """Return the calls that made messages visible at once, or after the end of a dead poll."""
    return [
        call
        for call in _of_queue(scene, CHANGE)
        if any(entry["VisibilityTimeout"] <= DEAD_POLL for entry in call.entries)
    ]


def make_visible(scene: Scene, handle: str) -> None:
    """Do what the end of a visibility timeout does: any consumer can receive the message."""
    scene.client.change_message_visibility(
        QueueUrl=scene.url, ReceiptHandle=handle, VisibilityTimeout=0
    )


def wait_for_extensions(scene: Scene, count: int, *, since: float, messages: int = 1) -> None:
    """Return once so many messages were each extended so often after a moment.

    Args:
        since: In monotonic seconds.
    """

    def are_extended() -> bool:
        times = Counter(
            entry["ReceiptHandle"]
            for call in _of_queue(scene, CHANGE)
            if call.started_at > since
            for entry in confirmed(call)
            if entry["VisibilityTimeout"] > DEAD_POLL
        )
        return sum(each >= count for each in times.values()) >= messages

    scene.wait_until(are_extended)


def released(scene: Scene) -> int:
    """Return how many receipt handles such calls released. A slow call may have been repeated."""
    return len(_released(scene))


def released_messages(scene: Scene) -> set[str]:
    """Return the ids of the messages that such calls released.

    A last poll that reaches SQS late may receive some of them again, by another handle.
    """
    handles = _released(scene)
    return {message for message, handle in _received(scene) if handle in handles}


def _released(scene: Scene) -> set[str]:
    return {
        entry["ReceiptHandle"]
        for call in release_calls(scene)
        for entry in call.entries
        if entry["VisibilityTimeout"] <= DEAD_POLL
    }


def timeouts_asked(scene: Scene) -> list[int]:
    """Return the visibility timeouts that extensions and releases requested, in order."""
    return [
        entry["VisibilityTimeout"] for call in _of_queue(scene, CHANGE) for entry in call.entries
    ]


def asked_of_releases(scene: Scene) -> dict[int, list[int]]:
    """Return the timeouts that releases requested first, by the receive count of their messages.

    The queue has a timeout of `LONG`.
    """
    asked: dict[str, int] = {}
    for call in _of_queue(scene, CHANGE):
        for entry in call.entries:
            if entry["VisibilityTimeout"] != int(LONG["VisibilityTimeout"]):
                asked.setdefault(entry["ReceiptHandle"], entry["VisibilityTimeout"])
    by_count: dict[int, list[int]] = {}
    receives_of: Counter[str] = Counter()
    for message, handle in _received(scene):
        receives_of[message] += 1
        if handle in asked:
            by_count.setdefault(receives_of[message], []).append(asked[handle])
    return by_count


def assert_released_for(scene: Scene, *delays: int, skip: int = 0) -> None:
    """Assert for how long the first releases hid their messages: for the rest of these delays.

    A release is for less than its delay by the time since the task ended, which is a second or more
    on a busy machine. The queue has a timeout of `LONG`, and one task after the other runs.

    Args:
        delays: In seconds.
        skip: How many runs and releases to leave out, from the first one.
    """
    by_handle: dict[str, tuple[int, float]] = {}
    for call in _of_queue(scene, CHANGE):
        for entry in call.entries:
            if entry["VisibilityTimeout"] != int(LONG["VisibilityTimeout"]):
                # The first call for it. If it is slow, it is repeated.
                release = (entry["VisibilityTimeout"], call.forwarded_at or call.started_at)
                by_handle.setdefault(entry["ReceiptHandle"], release)
    releases = list(by_handle.values())
    starts = [note.at for note in scene.notes("start")]
    end = skip + len(delays)
    assert len(starts) >= len(delays)
    for delay, start, (timeout, at) in zip(
        delays, starts[skip:end], releases[skip:end], strict=True
    ):
        assert delay - (at - start) <= timeout <= delay, releases


def extensions(scene: Scene) -> Counter[str]:
    """Return how often each message was extended, by its receipt handle."""
    return Counter(
        entry["ReceiptHandle"]
        for call in _of_queue(scene, CHANGE)
        for entry in call.entries
        if entry["VisibilityTimeout"] > DEAD_POLL
    )


def _of_queue(scene: Scene, operation: str) -> list[Call]:
    name = scene.url.rsplit("/", 1)[-1]
    return [call for call in scene.proxy.calls(operation) if call.queue_url.endswith("/" + name)]
