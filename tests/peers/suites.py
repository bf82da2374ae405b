"""Whose tests are run, on what, and which differences are intended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

#: Where our pytest plugins are.
PLUGINS = "tests.peers.plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An intended difference. A test that fails for another reason is not excused.

    Attributes:
        tests: Their ids, as a pattern.
        error: What its error has in it.
        reason: Why it is harmless.
    """

    tests: str
    error: str
    reason: str

    def excuses(self, test: str, error: str) -> bool:
        """Return whether that is why the test fails."""
        return fnmatchcase(test, self.tests) and self.error in error


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tests of another project.

    Attributes:
        package: Whose source distribution has them.
        paths: Its test files and folders.
        both: The pytest plugins with ours and with stock.
        ours: Those that replace something of theirs by ours.
        left_out: Tests that show nothing about ours, by prefix of their ids, with the reason.
        known: Intended differences.
        on_sqs: Whether they need an SQS and a Redis.
        shards: How many processes share them. Those that mostly wait take turns at it.
    """

    name: str
    package: str
    paths: tuple[str, ...]
    ours: tuple[str, ...]
    both: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    on_sqs: bool = False
    shards: int = 1

    @property
    def slug(self) -> str:
        """Its name in names of files."""
        return re.sub(r"\W+", "-", self.name)


_KOMBU = ("t/unit/transport/SQS",)
_KOMBU_LEFT_OUT = {
    "t/unit/asynchronous": "the event loop and its client, which ours uses as they are",
}
_ON_THREADS = "kombu receives none of the messages that are leased: ours does, on threads"
_COPIED_OPTIONS = (
    "it sets an option on the channel, where ours are a copy, with timeouts; users set none there"
)
_CANVAS = "t/integration/test_canvas.py"
_REDIS = "t/integration/test_redis_backend.py"
_TASKS = "t/integration/test_tasks.py::test_tasks"
_NO_BROADCAST = "tells the worker by broadcast, which SQS does not have"
_EXPECTED_TO_FAIL = "Celery expects it to fail"
_NO_WORKER = "asks the result backend alone, no worker"
_STOCK_WORKER = "starts a stock worker in a process of its own, which ends at once"
_LARGE = "sends a thousand tasks, as test_large_header does"

SUITES = (
    Suite(
        name="kombu: our transport, no heartbeat",
        package="kombu",
        paths=_KOMBU,
        left_out=_KOMBU_LEFT_OUT,
        ours=(f"{PLUGINS}.transport",),
    ),
    Suite(
        name="kombu: our channel, with a heartbeat",
        package="kombu",
        paths=_KOMBU,
        left_out=_KOMBU_LEFT_OUT,
        ours=(f"{PLUGINS}.bound",),
        known=(
            Known(
                tests="*",
                error="quenceNumber",
                reason="a receive of ours asks for what the keeper reports, too",
            ),
            Known(
                tests="*::test_Channel::test_fetch_message_attributes*",
                error="['.*'] == []",
                reason="a receive of ours asks for the sender's attributes, for a copy",
            ),
            Known(
                tests="*::test_Channel::test_*get_*",
                error="_queue.Empty",
                reason=_ON_THREADS,
            ),
            Known(
                tests="*::test_Channel::test_drain_events_with_prefetch_*",
                error="AssertionError: assert 0 == ",
                reason=_ON_THREADS,
            ),
            Known(
                tests="*::test_Channel::test_supports_fanout[[]True-True[]]",
                error="AssertionError: assert False == True",
                reason=_COPIED_OPTIONS,
            ),
            Known(
                tests="*::test_Channel::test_predefined_exchanges[[]exchanges1[]]",
                error="AssertionError: assert {} == {'exchange-1'",
                reason=_COPIED_OPTIONS,
            ),
            Known(
                tests="*::test_Channel::test_new_release_client_keeps_client_of_overridden_factory",
                error="missing 1 required keyword-only argument: 'heartbeat'",
                reason="our transport gives our channel its heartbeat; this one is made by hand",
            ),
        ),
    ),
    Suite(
        name="celery: our worker, on SQS",
        package="celery",
        paths=tuple(
            f"t/integration/test_{name}.py"
            for name in ("canvas", "group_chains", "redis_backend", "tasks")
        ),
        both=("celery.contrib.pytest", f"{PLUGINS}.on_sqs"),
        ours=(f"{PLUGINS}.worker",),
        left_out={
            f"{_CANVAS}::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": (
                "sends a message as RabbitMQ takes it, and has all later tests do so, too"
            ),
            f"{_CANVAS}::test_chord::test_error_propagates_from_chord": _EXPECTED_TO_FAIL,
            f"{_CANVAS}::test_chord::test_redis_subscribed_channels_leak": _EXPECTED_TO_FAIL,
            f"{_CANVAS}::test_chord::test_chain_to_a_chord_with_large_header": _LARGE,
            f"{_CANVAS}::test_group::test_large_group": _LARGE,
            "t/integration/test_loader.py": "looks for modules with tasks, and sends none",
            "t/integration/test_security.py": _EXPECTED_TO_FAIL,
            "t/integration/test_serialization.py": _STOCK_WORKER,
            "t/integration/test_worker.py": f"{_STOCK_WORKER}, or makes one and starts none",
            f"{_REDIS}::test_chord_expires": _NO_WORKER,
            f"{_REDIS}::test_decode_responses": _NO_WORKER,
            f"{_REDIS}::test_failure_expires": _NO_WORKER,
            f"{_REDIS}::test_pubsub": _NO_WORKER,
            # All whose names begin so.
            f"{_TASKS}::test_revoke": _NO_BROADCAST,
            f"{_TASKS}::test_reject_with_requeue": (
                "its task rejects itself until kombu says that it is redelivered, and the SQS "
                "channel never does"
            ),
        },
        on_sqs=True,
        shards=3,
    ),
)
