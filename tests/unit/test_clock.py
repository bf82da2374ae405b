"""The clock of the leases keeps running while a machine is suspended."""

from __future__ import annotations

import time

import pytest

from celery_sqs_heartbeat.common import clock

BOOTTIME, RAW, MONOTONIC = 7, 4, 1
LINUX = {"CLOCK_BOOTTIME": BOOTTIME, "CLOCK_MONOTONIC_RAW": RAW, "CLOCK_MONOTONIC": MONOTONIC}
MACOS = {"CLOCK_MONOTONIC_RAW": RAW, "CLOCK_MONOTONIC": MONOTONIC}
#: What each clock shows after the machine was suspended. Only one kept running.
LINUX_SAYS = {BOOTTIME: 3600.0, RAW: 1.0, MONOTONIC: 1.0}
MACOS_SAYS = {RAW: 3600.0, MONOTONIC: 3600.1}


@pytest.mark.parametrize(
    ("platform", "clocks", "says", "now"),
    [
        ("linux", LINUX, LINUX_SAYS, 3600.0),
        ("android", LINUX, LINUX_SAYS, 3600.0),
        ("darwin", MACOS, MACOS_SAYS, 3600.0),
        # macOS before 10.12, and an old Linux kernel: Python has the name, but not the clock.
        ("darwin", MACOS, {}, 1.0),
        ("linux", LINUX, {}, 1.0),
        ("freebsd14", {"CLOCK_MONOTONIC": MONOTONIC}, {MONOTONIC: 1.0}, 1.0),
        ("win32", {}, {}, 1.0),
    ],
)
def test_the_clock_that_keeps_running_during_a_suspend_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    clocks: dict[str, int],
    says: dict[int, float],
    now: float,
) -> None:
    def gettime(number: int) -> float:
        if number not in says:
            raise OSError(22, "Invalid argument")
        return says[number]

    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC"):
        monkeypatch.delattr(time, name, raising=False)
    for name, number in clocks.items():
        monkeypatch.setattr(time, name, number, raising=False)
    monkeypatch.setattr(time, "clock_gettime", gettime)
    # Stops during a suspend on every system.
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    assert clock.choose_clock(platform)() == now


def test_the_clock_never_goes_backward() -> None:
    times = [clock.now() for _ in range(100)]
    assert times == sorted(times)
