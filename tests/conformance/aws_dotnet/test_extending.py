"""When messages are extended, together and apart.

Source: aws/aws-dotnet-messaging, docs/docs/design/message-visibility-timeout-handling.md and
test/AWS.Messaging.UnitTests/DefaultMessageManagerTests.cs.
"""

from __future__ import annotations

import functools

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.policy import GATHER_SECONDS
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness

#: The framework's own defaults.
DOTNET = LeaseTerms(visibility_timeout=30, threshold=5)
#: Of its unit tests. Their interval equals the threshold, which its own check and ours refuse.
#: Ours is half of it.
BRIEF = LeaseTerms(visibility_timeout=2, threshold=1)


def test_a_handler_of_45_s_takes_one_extension_at_25_s_and_a_delete_at_45_s() -> None:
    """The worked example of its design document.

    Its mode without fill-up is not one of ours: we fill a call up with the next leases
    of its queue. A lease that is alone on its queue has nothing to be filled up with, so
    one message shows the bare policy. The delete waits for others to share its call, for
    50 ms at most; the framework's own is made at once, one call for each message.
    """
    bench = ConsumerHarness(DOTNET, interval=1)
    bench.process("a", takes=45)
    bench.run(until=44.9)
    assert bench.timeline() == [(25.0, "extend", ["a"])]
    assert bench.calls[0].asks[0].timeout == 30
    assert bench.message("a").visible_at == 55.0

    bench.run(until=120)
    _, delete = bench.calls
    assert delete.action == "delete"
    assert delete.names == ["a"]
    assert 45.0 <= delete.at <= 45.0 + GATHER_SECONDS
    assert bench.message("a").is_deleted
    assert bench.lapses == []


def test_a_handler_that_succeeds_at_once_takes_a_delete_and_no_extension() -> None:
    """DefaultMessageManager_ManagesMessageSuccess."""
    bench = ConsumerHarness(DOTNET)
    bench.process("a", takes=0)
    bench.run(until=120)
    assert [call.action for call in bench.calls] == ["delete"]
    assert len(bench.keeper) == 0


def test_a_handler_that_fails_at_once_takes_no_delete_and_no_extension() -> None:
    """DefaultMessageManager_ManagesMessageFailed.

    The framework lets the timeout run out after a failure; its document leaves open
    whether the message should be made visible instead. We make it visible.
    """
    bench = ConsumerHarness(DOTNET)
    bench.process("a", takes=0, failed=True)
    bench.run(until=120)
    assert bench.timeline() == [(0.0, "release", ["a"])]
    assert len(bench.keeper) == 0
    assert bench.steal() == ["a"]


def test_two_messages_received_together_are_extended_in_one_call() -> None:
    """DefaultMessageManager_ExtendsVisibilityTimeout_Batch."""
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.process("a", "b", takes=3)
    bench.run(until=10)
    assert bench.timeline() == [
        (1.0, "extend", ["a", "b"]),
        (2.0, "extend", ["a", "b"]),
        (3.0, "delete", ["a", "b"]),
    ]
    assert bench.lapses == []
    assert len(bench.keeper) == 0


def test_two_messages_received_apart_are_each_extended_and_never_lapse() -> None:
    """DefaultMessageManager_ExtendsVisibilityTimeout_OnlyWhenNecessary.

    It counts one to four calls for each message and none for both. Ours share each call from
    the first one that both can join, because we fill calls up.
    """
    bench = ConsumerHarness(BRIEF, interval=0.5)
    bench.process("early", at=0, takes=4)
    bench.process("late", at=3, takes=4)
    bench.run(until=20)
    assert 1 <= len(bench.asked("extend", "early")) <= 4
    assert 1 <= len(bench.asked("extend", "late")) <= 4
    assert len(bench.asked("delete", "early")) == len(bench.asked("delete", "late")) == 1
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
    assert len(bench.keeper) == 0


def test_after_100_messages_none_is_active() -> None:
    """DefaultMessageManager_CountsActiveMessagesCorrectly: 100 handlers of 1 s at once."""
    bench = ConsumerHarness(DOTNET)
    bench.process(*(f"m{number}" for number in range(100)), takes=1)
    bench.run(until=0.5)
    assert len(bench.keeper) == 100
    bench.run(until=60)
    assert len(bench.keeper) == bench.keeper.ending == 0
    assert [(call.action, len(call.asks)) for call in bench.calls] == [("delete", 10)] * 10
    assert bench.queue().messages == {}


@pytest.mark.parametrize(
    ("messages", "handlers"), [(5, 5), (8, 5), (15, 15), (20, 15)], ids=lambda value: str(value)
)
def test_many_messages_are_each_handled_once_though_handlers_outlast_the_timeout(
    messages: int, handlers: int
) -> None:
    """SubscriberTests.SendAndReceiveMultipleMessages: VT 5, threshold 3, handlers of 10 s."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=5, threshold=3))
    bench.send(*(f"m{number:02}" for number in range(messages)))

    def fill() -> None:
        while free := handlers - (len(bench.keeper) - bench.keeper.ending):
            names = bench.receive(count=min(10, free))
            if not names:
                return
            for name in names:
                bench.at(bench.now + 10, functools.partial(end, name))

    def end(name: str) -> None:
        bench.end(name)
        fill()

    bench.at(0, fill)
    bench.run(until=60)
    assert len(bench.deliveries) == messages
    assert bench.lapses == []
    assert bench.queue().messages == {}
    assert all(len(call.asks) <= 10 for call in bench.calls)
