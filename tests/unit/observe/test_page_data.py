"""The status page's data remembers events for a while."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import DUE_LATER, Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.observe.page_data import HAPPENINGS, MINUTES, PageData
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.observed import LONG, QUEUE, Sqs
from tests.unit.observe.happening import event, one_of_each

EXTENDED = EventKind.LEASE_EXTENDED


class Page:
    """The data of a page whose keeper holds message m since 1000 s."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        keeper = ThreadKeeper(Sqs(), terms=LONG, clock=self.clock)
        keeper.receive(QUEUE, {"MessageId": "m", "ReceiptHandle": "m"})
        self.data = PageData()
        self.data.watch(keeper)

    def note(self, *events: Event) -> None:
        for each in events:
            self.data(each)

    def extended_ago(self) -> list[float]:
        (lease,) = self.data.leases()["leases"]
        return list(lease["extended_ago"])

    def happenings(self) -> list[str]:
        """Return what happened, the latest first."""
        return [each["what"] for each in self.data.events()["happenings"]]

    def calls_at(self, now: float) -> list[dict[str, Any]]:
        self.clock.advance(now - self.clock())
        return list(self.data.events()["calls_per_minute"])


@pytest.fixture
def page() -> Page:
    return Page()


def test_the_last_extensions_of_a_lease_are_remembered_until_it_ends(page: Page) -> None:
    page.note(*(event(EXTENDED, at=1000.0 - number) for number in reversed(range(20))))
    assert page.extended_ago() == [7, 6, 5, 4, 3, 2, 1, 0]
    page.note(event(EventKind.MESSAGE_DELETED))
    assert page.extended_ago() == []


def test_the_extensions_of_only_so_many_leases_are_remembered(page: Page) -> None:
    page.note(event(EXTENDED), *(event(EXTENDED, message_id=str(n)) for n in range(4_095)))
    assert page.extended_ago() == [0]
    page.note(event(EXTENDED, message_id="one more"))
    assert page.extended_ago() == []


def test_releases_and_losses_are_remembered_the_latest_first(page: Page) -> None:
    page.note(*one_of_each())
    assert page.happenings() == ["lapsed", "released", "capped", "lost", "expired"]
    page.note(*(event(EventKind.MESSAGE_RELEASED, call_number=100 + n) for n in range(HAPPENINGS)))
    assert page.happenings() == ["released"] * HAPPENINGS


def test_parked_messages_do_not_displace_failures(page: Page) -> None:
    page.note(
        event(EventKind.LEASE_LOST, outcome=Outcome.LOST),
        *(event(EventKind.MESSAGE_RELEASED, cause=DUE_LATER) for _ in range(HAPPENINGS)),
    )
    assert page.happenings() == ["lost"]
    assert page.data.events()["happenings_left_out"] == 0


def test_calls_are_counted_once_in_the_minute_of_their_answer(page: Page) -> None:
    page.note(
        event(EXTENDED, at=1200.0, message_id="a"),
        event(EXTENDED, at=1200.0, message_id="b"),
        event(EXTENDED, at=1259.9, call_number=2),
        event(EventKind.MESSAGE_DELETED, at=1260.0, call_number=3),
        event(EventKind.LEASE_EXPIRED, at=1261.0),
    )
    minutes = page.calls_at(1325.0)
    assert len(minutes) == MINUTES
    assert minutes[-3:] == [
        {"change_visibility": 2, "delete": 0},
        {"change_visibility": 0, "delete": 1},
        {"change_visibility": 0, "delete": 0},
    ]


def test_old_minutes_are_forgotten(page: Page) -> None:
    page.note(
        *(
            event(EXTENDED, at=60.0 * minute, call_number=minute, action=Action.RELEASE)
            for minute in range(17, 500)
        )
    )
    assert sum(each["change_visibility"] for each in page.calls_at(60.0 * 499)) == MINUTES
    assert len(page.data._calls) == MINUTES + 1
