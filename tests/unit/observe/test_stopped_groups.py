"""Which message groups are shown as stopped, and for how long."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.observe.watched import AFTERTIME, CAPACITY, StoppedGroups
from tests.unit.observe.happening import FIFO, event


def noted(*events: Event) -> StoppedGroups:
    groups = StoppedGroups()
    for each in events:
        groups.note(each)
    return groups


def of_group(kind: EventKind, group: str = "A17", **values: Any) -> Event:
    return event(kind, queue_url=FIFO, group=group, **values)


def stop(group: str = "A17", **values: Any) -> Event:
    released = {"stops_group": True, "visibility_timeout": 30, **values}
    return of_group(EventKind.MESSAGE_RELEASED, group, **released)


def test_a_group_is_stopped_until_its_message_is_visible_and_remembered_for_a_while() -> None:
    groups = noted(stop())
    assert groups.hidden(1029.9) == {"orders.fifo": 1}
    assert groups.hidden(1030.0) == {}
    ((stopped, visible_at),) = groups.view(1030.0 + AFTERTIME)
    assert (stopped.group, stopped.cause, visible_at) == ("A17", "failed", 1030.0)
    assert groups.view(1030.1 + AFTERTIME) == []


def test_a_message_that_is_left_to_lapse_stays_hidden_until_its_lease_expires() -> None:
    lapsing = of_group(EventKind.MESSAGE_LAPSING, stops_group=True, slack=12.0)
    over = of_group(EventKind.MESSAGE_LAPSING, "B4", stops_group=True, slack=-3.0)
    visible = {each.event.group: each.visible_at for each in noted(lapsing, over).view(1000.0)}
    assert visible == {"A17": 1012.0, "B4": 1000.0}


def test_messages_behind_it_do_not_stop_a_group() -> None:
    behind = of_group(EventKind.MESSAGE_RELEASED, cause="group stopped")
    assert noted(behind).view(1000.0) == []


def test_a_group_continues_when_a_message_of_it_is_received() -> None:
    other = of_group(EventKind.MESSAGE_RECEIVED, "B4")
    assert len(noted(stop(), other).view(1000.0)) == 1
    for kind in (EventKind.MESSAGE_RECEIVED, EventKind.MESSAGE_DELETED):
        assert noted(stop(), of_group(kind)).view(1000.0) == []


def test_the_last_stop_of_a_group_counts() -> None:
    groups = noted(stop(), stop("B4", at=1001.0), stop(at=1010.0, cause="worker died"))
    shown = [(each.event.group, each.event.cause) for each in groups.view(1010.0)]
    assert shown == [("A17", "worker died"), ("B4", "failed")]


def test_groups_of_the_same_name_on_two_queues_are_two() -> None:
    groups = noted(stop(), event(EventKind.MESSAGE_RELEASED, group="A17", stops_group=True))
    assert len(groups.view(1000.0)) == 2


def test_only_so_many_are_remembered() -> None:
    groups = noted(*(stop(str(number)) for number in range(CAPACITY + 1)))
    remembered = {each.event.group for each in groups.view(1000.0)}
    assert (len(remembered), "0" in remembered) == (CAPACITY, False)
