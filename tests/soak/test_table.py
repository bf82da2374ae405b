"""The table of causes: each has a case and a source, and may not explain too much."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.soak import table
from tests.soak.audit import Verdict
from tests.soak.delivery import Message
from tests.soak.model import Call
from tests.soak.shares import ALWAYS, overused, shares
from tests.soak.story import Story
from tests.soak.table import TABLE, Row
from tests.soak.test_causes import (
    cut_short,
    expired,
    extended_and_failed,
    refused,
    refused_batch,
    released,
    released_late,
    unread,
    waiting,
)
from tests.soak.test_groups import stopped
from tests.soak.test_keeper_causes import cut, in_a_poll, not_handed_over, short_lived

ROOT = Path(__file__).parents[2]


#: A story for each row.
CASES: Mapping[Row, Callable[[], Story]] = {
    table.RELEASED_BY_TASK: lambda: released(3.0, 2.9, "fail"),
    table.WAITED_IN_SHUTDOWN: lambda: waiting(2.0).harm("warm", "a", 1.5),
    table.CUT_OFF_BY_SHUTDOWN: lambda: released(3.0, 9.0).harm("cold", "a", 2.0),
    table.GROUP_STOPPED: lambda: stopped().ahead("a", 1.0, back=2.1, done=2.9),
    table.KILLED: lambda: released(3.0, math.inf).harm("kill", "a", 2.5),
    table.KEEPER_DOWN: lambda: short_lived().harm("keeper-kill", "a", 3.5),
    table.RELEASE_CUT: lambda: cut().harm("keeper-kill", "a", 2.655).logs_unrepeated("a"),
    table.NOT_HANDED_OVER: lambda: not_handed_over().harm("keeper-kill", "a", 1.5),
    table.LEFT_IN_POLL: lambda: in_a_poll().harm("keeper-kill", "a", 1.5),
    table.POOL_KILLED: lambda: released(3.0, 9.0).harm("pool-kill", "a", 2.0, pid=1),
    table.BROKEN: lambda: waiting(2.0).breaks("a").harm("broken", "a", 5.0).end("a", 5.0),
    table.STOPPED: lambda: expired().harm("pause", "a", 4.0, 9.0),
    table.STARVED: lambda: expired().harm("starved", "a", 5.1, 7.0),
    table.STALLED: lambda: expired().harm("stalled", "", 5.1, 7.0),
    table.DISCONNECTED: lambda: released(3.0, 9.0).cancels("a").harm("break", "a", 2.0),
    table.REFUSED: refused,
    table.UNREAD: unread,
    table.LEFT_TO_TIMEOUT: lambda: extended_and_failed(6.95, 8.0),
    table.DELAYED: lambda: released_late(paused_until=9.6),
    table.DISTURBED: lambda: cut_short(8.0).harm("pause", "x", 4.0, 7.9),
    table.BATCH_LOST: lambda: refused_batch(0.5),
}


def soak(row: Row, used: int, extra: int) -> list[Verdict]:
    """Return the verdicts of a soak in which a row explains `used` of all extra receives."""
    queue = Story().records.queues["q"]
    sent = Call(worker="soak", operation="SendMessage", queue="q", started=0.0)
    message = Message(message_id="m", queue=queue, sent=sent, task="work", task_id="t")
    return [Verdict(message=message, redeliveries=["why"] * extra, rows=[row] * used)]


def test_the_table_has_every_row_once() -> None:
    rows = [value for value in vars(table).values() if isinstance(value, Row)]
    assert list(TABLE) == rows
    assert len({row.name for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_row_explains_a_case(row: Row) -> None:
    assert row in CASES[row]().explained().rows


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_row_has_a_source_that_exists(row: Row) -> None:
    path, _, place = row.where.partition("#")
    text = (ROOT / path).read_text()
    assert row.source.endswith(".")
    if path.endswith(".md"):
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert place in [
            re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings
        ]
    else:
        assert f"\ndef {place}(" in text


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_cause_may_explain_its_share_and_no_more(row: Row) -> None:
    extra = 1_000
    most = round(row.share * extra)
    assert overused(soak(row, most, extra)) == []
    (fault,) = overused(soak(row, most + 1, extra))
    for part in (row.name, f"{most + 1} of 1000", f"at most {row.share:.0%}", row.where):
        assert part in fault


def test_a_small_soak_may_have_one_cause_for_everything() -> None:
    assert overused(soak(table.DELAYED, ALWAYS, ALWAYS)) == []
    assert overused(soak(table.DELAYED, ALWAYS + 1, ALWAYS + 1)) != []


def test_only_what_was_requested_or_measured_may_explain_most_of_a_soak() -> None:
    most = [row for row in TABLE if row.share > 0.6]
    assert most == [table.RELEASED_BY_TASK, table.WAITED_IN_SHUTDOWN, table.STALLED]


def test_a_soak_without_extra_receives_has_shares_of_nothing() -> None:
    assert overused([]) == []
    assert set(shares([])) == {row.name for row in TABLE}


def test_shares_show_uses_share_and_limit() -> None:
    shown = shares(soak(table.KILLED, 5, 20))[table.KILLED.name]
    assert shown.split() == ["5", "25%", "of", "at", "most", f"{table.KILLED.share:.0%}"]
