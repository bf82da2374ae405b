"""How the tests of late extensions excuse delays that no worker can avoid."""

from __future__ import annotations

import pytest

from tests.acceptance.lateness import late_extensions
from tests.support.recording import Call
from tests.support.releases import CHANGE
from tests.support.stalls import Stall, stood_still


@pytest.mark.parametrize(
    ("stalls", "expected"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([Stall(15, 2)], 2, id="within"),
        pytest.param([Stall(11, 4), Stall(22, 4)], 3, id="over both ends"),
        pytest.param([Stall(9, 4), Stall(30, 4)], 0, id="outside"),
        pytest.param([Stall(15, 2), Stall(16, 5)], 5, id="one within another"),
        pytest.param([Stall(16, 2), Stall(15, 3)], 4, id="overlapping"),
    ],
)
def test_time_in_which_several_processes_are_stalled_counts_once(
    stalls: list[Stall], expected: float
) -> None:
    assert stood_still(stalls, 10, 20) == expected


@pytest.mark.parametrize(
    ("extended_at", "answered_after", "late"),
    [
        pytest.param([103, 106], 0.01, [], id="in time"),
        pytest.param([103, 108], 0.01, [1], id="late"),
        pytest.param([103, 108], 2.0, [], id="late because the server was late"),
        pytest.param([103, 108], 0.5, [1], id="later than the server"),
    ],
)
def test_an_extension_is_late_if_its_lease_had_expired_and_nothing_was_stalled(
    extended_at: list[float], answered_after: float, late: list[float]
) -> None:
    receive = Call(
        operation="ReceiveMessage",
        body={},
        forwarded_at=99.0,
        answered_at=100.0,
        answer={"Messages": [{"ReceiptHandle": "h"}]},
    )
    extensions = [
        Call(
            operation=CHANGE,
            body={"Entries": [{"Id": "1", "ReceiptHandle": "h", "VisibilityTimeout": 4}]},
            forwarded_at=at,
            answered_at=at + answered_after,
            answer={"Successful": [{"Id": "1"}]},
        )
        for at in extended_at
    ]
    assert late_extensions([receive, *extensions], 4, []) == late
