"""The parts of the transport: which part knows which, and tests of the small ones."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kombu import Connection
from kombu.transport import SQS

from celery_sqs_heartbeat import transport
from celery_sqs_heartbeat.leases.events import NOT_DELIVERED
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.transport.channel import Channel
from celery_sqs_heartbeat.transport.kombu_channel import (
    CLIENT_SECONDS,
    REPORTED,
    with_reported,
    with_timeouts,
)
from tests.support.joined import Joined

FOLDER = Path(transport.__file__).parent


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of the package that a module imports, including imports for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("celery_sqs_hea"):
            yield str(node.module)


def test_the_parts_have_no_circular_imports() -> None:
    own = f"{transport.__name__}."
    graph = {
        path.stem: {name.removeprefix(own) for name in imported(path) if name.startswith(own)}
        for path in FOLDER.glob("*.py")
    }
    # Raises an error if there is a cycle.
    assert "channel" in list(TopologicalSorter(graph).static_order())


def test_no_part_imports_the_keeper_or_the_worker() -> None:
    above = {"keeper", "worker", "cli", "contrib"}
    for path in FOLDER.glob("*.py"):
        assert not {name.split(".")[1] for name in imported(path) if "." in name} & above, path.name
    code = f"import sys, {transport.__name__}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "celery_sqs_heartbeat.keeper" not in done.stdout.split()


def connection() -> Connection:
    queues = {"q": {"url": "https://sqs.us-east-1.amazonaws.com/1/q"}}
    return Connection(
        "sqs://key:secret@",
        transport=transport.Transport,
        transport_options={"predefined_queues": queues},
    )


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    joined = Joined()
    yield Heartbeat(
        keeper=joined.worker,
        settings=Settings(),
        queues=QueueDirectory(lambda url: QueueAttributes(), lambda job: job()),
        clients=joined.clients,
    )
    joined.close()


def test_a_channel_has_leases_only_while_a_heartbeat_is_bound(heartbeat: Heartbeat) -> None:
    with connection() as before, connection() as made:
        assert type(before.channel()) is SQS.Channel
        bind(heartbeat)
        try:
            assert type(made.channel()) is Channel
            # Nothing would tell it that messages have arrived.
            assert type(before.channel()) is SQS.Channel
        finally:
            bind(None)
        assert type(made.channel()) is SQS.Channel


@pytest.mark.parametrize("is_green", [False, True])
def test_a_request_leaves_the_pool_with_its_slot_or_with_greenlets_at_its_end(
    heartbeat: Heartbeat, is_green: bool
) -> None:
    feed, request, heartbeat.is_green = Mock(), Mock(), is_green
    heartbeat.feeds[1], heartbeat.in_pool["h"] = feed, request
    heartbeat.note_free("h")
    assert ("h" in heartbeat.in_pool) is is_green
    heartbeat.note_run("h")
    assert not heartbeat.in_pool
    # A task of an earlier connection makes room for this one, too.
    assert feed.fill.call_count == 1 + is_green


def test_each_channel_gets_its_own_messages_and_those_of_a_closed_one_are_released(
    heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[tuple[str, str]] = []
    monkeypatch.setattr(
        heartbeat.keeper, "release", lambda handle, cause: released.append((handle, cause))
    )
    numbers = [heartbeat.new_channel() for _ in range(3)]
    first, second = Mock(), Mock()
    heartbeat.feeds.update({numbers[0]: first, numbers[1]: second})
    messages: list[Any] = [SimpleNamespace(handle=each) for each in "abcd"]
    channels = [numbers[1], numbers[0], numbers[2], numbers[1]]
    heartbeat.keeper.on_arrived(list(zip(channels, messages, strict=True)))
    assert [call.args[0] for call in first.take.call_args_list] == [messages[1:2]]
    assert [call.args[0] for call in second.take.call_args_list] == [messages[:1], messages[3:]]
    assert released == [("c", NOT_DELIVERED)]


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        (None, [*REPORTED]),
        ("All", [*REPORTED]),
        ([], [*REPORTED]),
        (["SenderId", REPORTED[1]], ["SenderId", REPORTED[1], REPORTED[0], *REPORTED[2:]]),
        (
            {"MessageAttributeNames": ["tenant"]},
            {"MessageAttributeNames": ["tenant"], "MessageSystemAttributeNames": [*REPORTED]},
        ),
        ({"MessageSystemAttributeNames": "All"}, {"MessageSystemAttributeNames": "All"}),
    ],
)
def test_a_receive_requests_the_users_attributes_and_the_reported_ones(
    wanted: Any, asked: Any
) -> None:
    assert with_reported(wanted) == asked


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, {"read_timeout": 30.0, "max_pool_connections": 1_000}),
        ({"read_timeout": 3}, {"read_timeout": 30.0, "max_pool_connections": 1_000}),
        (
            {"read_timeout": 90, "max_pool_connections": 7},
            {"read_timeout": 90, "max_pool_connections": 7},
        ),
        (
            {"read_timeout": None, "connect_timeout": None},
            {
                "read_timeout": CLIENT_SECONDS,
                "connect_timeout": CLIENT_SECONDS,
                "max_pool_connections": 1_000,
            },
        ),
    ],
)
def test_every_call_has_a_timeout_longer_than_a_poll_and_every_poll_a_connection(
    given: dict[str, Any] | None, kept: dict[str, Any]
) -> None:
    options = {"region": "x", "client-config": given}
    before = repr(options)
    assert with_timeouts(options, wait=20) == {"region": "x", "client-config": kept}
    assert repr(options) == before
    assert with_timeouts({}, wait=20)["client-config"]["read_timeout"] == 30.0


def test_a_line_to_log_once_is_new_once_for_each_subject(heartbeat: Heartbeat) -> None:
    assert [heartbeat.first_time(each) for each in ("a", "b", "a", "a")] == [
        True,
        True,
        False,
        False,
    ]
