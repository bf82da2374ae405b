"""Several broker URLs for one queue: leases survive the change to the next URL."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.orders import MODULE, leases, order, wait_for_no_lease
from tests.acceptance.record import CHANGE, extensions, receives
from tests.acceptance.scene import Scene
from tests.support.proxy import FaultProxy
from tests.support.servers import SqsServer

NewScene = Callable[..., Scene]
OPTIONS = {
    "region": "us-east-1",
    "is_secure": False,
    "wait_time_seconds": 1,
    # boto3's own retries of a connection would take half a minute.
    "client-config": {"retries": {"total_max_attempts": 1}},
}
#: The first extension comes after two seconds. No worker need read the queue's own timeout.
EAGER = {"sqs_heartbeat_visibility_timeout": 120, "sqs_heartbeat_threshold": 118}


@pytest.fixture
def first(sqs_server: SqsServer) -> Iterator[FaultProxy]:
    """Another way to the server than the scene's."""
    with FaultProxy(sqs_server.url) as running:
        yield running


@pytest.fixture
def dead() -> Iterator[str]:
    """A broker URL at which nothing listens, or can listen during the test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"sqs://testing:testing@127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.oldest
def test_leases_survive_the_change_to_the_next_broker_url(
    new_scene: NewScene, first: FaultProxy, dead: str
) -> None:
    # No lease can expire before the next URL is used, however slow that is.
    scene = new_scene(attributes={"VisibilityTimeout": "120"})
    urls = ";".join([dead, first.broker_url, scene.proxy.broker_url])
    conf = {"imports": [MODULE], "broker_transport_options": OPTIONS, **EAGER}
    worker = scene.worker("-c", "1", conf=conf, env={"CELERY_BROKER_URL": urls})
    scene.send("hold", "a")
    scene.send("work", "b")
    scene.wait_for_notes("start", 1)
    # Both are held: an answer under way would be lost with the first URL.
    scene.wait_until(lambda: leases(scene) == 2)
    first.wait_for(CHANGE)
    first.stop()
    # The server still answers a poll whose client has gone: it would receive what is released.
    scene.wait_until(
        lambda: all(call.answered_at is not None for call in first.calls("ReceiveMessage"))
    )
    order(scene, "lose_connection")
    worker.wait_for_log("lost on purpose")
    # The waiting message was released and is received again. The running one is held.
    scene.wait_until(lambda: len(receives(scene)) == 1)
    scene.wait_until(lambda: extensions(scene))
    scene.wait_until(lambda: leases(scene) == 2)
    scene.let_end("a")
    scene.wait_for_notes("end", 2)
    scene.wait_until_empty()
    wait_for_no_lease(scene)
    assert scene.keys("start") == ["a", "b"]
    assert {call.queue_url for call in scene.calls(CHANGE)} == {scene.url}
