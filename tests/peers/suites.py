"""Whose tests are run, on what, and which differences are meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.peers.comparing import Known

_PLUGINS = "tests.peers.plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tests of another project, to be run twice.

    Attributes:
        package: Whose source distribution has them.
        paths: Its test files and folders.
        both: The pytest plugins for either run.
        ours: Those that put something of ours in the place of theirs.
        left_out: Tests that can't pass on SQS with any worker, by how their ids begin, with
            the reason.
        known: Differences that are meant.
        on_sqs: Whether they need an SQS and a Redis.
    """

    name: str
    package: str
    paths: tuple[str, ...]
    ours: tuple[str, ...]
    both: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    on_sqs: bool = False


_KOMBU = ("t/unit/transport/SQS", "t/unit/asynchronous")
_CANVAS = "t/integration/test_canvas.py"
_REVOKE = "t/integration/test_tasks.py::test_tasks::test_revoke"
_WORKER = "t/integration/test_worker.py"
_NO_BROADCAST = "tells the worker by broadcast, which SQS does not have"

SUITES = (
    Suite(
        name="kombu: our channel, no heartbeat",
        package="kombu",
        paths=_KOMBU,
        ours=(f"{_PLUGINS}.channel",),
    ),
    Suite(
        name="kombu: our channel, with a heartbeat",
        package="kombu",
        paths=_KOMBU,
        ours=(f"{_PLUGINS}.bound",),
        known=(
            Known(
                tests="*",
                error="entTimestamp",
                reason="a receive of ours asks for what the keeper reports, too",
            ),
            Known(
                tests="*::test_Channel::test_get_async",
                error="{'VisibilityTimeout': 30}",
                reason="a receive of ours says for how long it hides its messages",
            ),
            Known(
                tests="*",
                error="'SQSClientMock' object has no attribute 'meta'",
                reason="a receive of ours notes when boto3 sends it; this client is made by hand",
            ),
        ),
    ),
    Suite(
        name="celery: our worker, on SQS",
        package="celery",
        paths=tuple(
            f"t/integration/test_{name}.py"
            for name in (
                "canvas",
                "group_chains",
                "loader",
                "redis_backend",
                "security",
                "serialization",
                "tasks",
                "worker",
            )
        ),
        both=("celery.contrib.pytest", f"{_PLUGINS}.on_sqs"),
        ours=(f"{_PLUGINS}.worker",),
        left_out={
            f"{_CANVAS}::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": (
                "sends a message as RabbitMQ takes it, and has all later tests do so, too"
            ),
            # All whose names begin so.
            _REVOKE: _NO_BROADCAST,
            f"{_WORKER}::test_concurrency_auto_sizes_prefork_pool": _NO_BROADCAST,
            f"{_WORKER}::test_pidbox_reset_after_repeated_control_errors": _NO_BROADCAST,
        },
        on_sqs=True,
    ),
)
