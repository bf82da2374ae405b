"""The recorder remembers events for the status page."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import DUE_LATER, EventKind
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.observe.recorder import HAPPENINGS, MINUTES, Recorder
from tests.unit.observe.happening import QUEUE, event, one_of_each

EXTENDED = EventKind.LEASE_EXTENDED


def record(*events: object) -> Recorder:
    recorder = Recorder()
    for each in events:
        recorder(each)  # type: ignore[arg-type]
    return recorder


def test_the_last_extensions_of_a_lease_are_remembered_until_it_ends() -> None:
    recorder = record(*(event(EXTENDED, at=1000.0 + number) for number in range(20)))
    marks = recorder.extended_at()[QUEUE, "m"]
    assert marks == tuple(1012.0 + number for number in range(8))
    recorder(event(EventKind.MESSAGE_DELETED))
    assert recorder.extended_at() == {}


def test_only_so_many_leases_are_remembered() -> None:
    recorder = record(*(event(EXTENDED, message_id=f"m{number}") for number in range(4_100)))
    assert len(recorder.extended_at()) == 4_096
    assert (QUEUE, "m0") not in recorder.extended_at()


def test_releases_and_losses_are_remembered_the_latest_first() -> None:
    recorder = record(*one_of_each())
    assert [each.what for each in recorder.happenings()] == [
        "lapsed",
        "released",
        "capped",
        "lost",
        "expired",
    ]
    for number in range(HAPPENINGS):
        recorder(event(EventKind.MESSAGE_RELEASED, call_number=100 + number))
    assert {each.what for each in recorder.happenings()} == {"released"}
    assert len(recorder.happenings()) == HAPPENINGS


def test_parked_messages_do_not_displace_failures() -> None:
    recorder = record(
        event(EventKind.LEASE_LOST, outcome=Outcome.LOST),
        *(event(EventKind.MESSAGE_RELEASED, cause=DUE_LATER) for _ in range(HAPPENINGS)),
    )
    assert [each.what for each in recorder.happenings()] == ["lost"]
    assert recorder.happened == 1


def test_calls_are_counted_once_in_the_minute_of_their_answer() -> None:
    recorder = record(
        event(EXTENDED, at=600.0, message_id="a"),
        event(EXTENDED, at=600.0, message_id="b"),
        event(EXTENDED, at=659.9, call_number=2),
        event(EventKind.MESSAGE_DELETED, at=660.0, call_number=3),
        event(EventKind.LEASE_EXPIRED, at=661.0),
    )
    minutes = recorder.calls(now=725.0)
    assert len(minutes) == MINUTES
    assert [(each.minute, each.change_visibility, each.delete) for each in minutes[-3:]] == [
        (10, 2, 0),
        (11, 0, 1),
        (12, 0, 0),
    ]


def test_old_minutes_are_forgotten() -> None:
    recorder = record(
        *(
            event(EXTENDED, at=60.0 * minute, call_number=minute, action=Action.RELEASE)
            for minute in range(1, 500)
        )
    )
    assert sum(each.change_visibility for each in recorder.calls(now=60.0 * 499)) == MINUTES
    for minute in range(500 - 2 * MINUTES):
        assert sum(each.change_visibility for each in recorder.calls(now=60.0 * minute)) == 0
