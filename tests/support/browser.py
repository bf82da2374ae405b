"""A headless Chromium, from Debian's packages chromium and chromium-driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: It requests nothing except the page, and leaves nothing behind.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def is_missing() -> str | None:
    """Return the name of a missing program, if any."""
    return next((name for name in ("chromium", "chromedriver") if not shutil.which(name)), None)


def require_chromium() -> None:
    """Skip the test if there is no Chromium, except in CI, which installs it."""
    if name := is_missing():
        assert not os.environ.get("CI"), f"{name} is missing, and .ci/run should install it"
        pytest.skip(f"{name} is missing: install Debian's chromium and chromium-driver")


@contextmanager
def chromium(profile: Path, size: tuple[int, int] = (1200, 900)) -> Iterator[Any]:
    """Run a browser with its own profile and a window of that size in pixels."""
    # Not at the top: the environment with the oldest versions lacks it, but collects these tests.
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size={},{}".format(*size)):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def emulate(driver: Any, *, scheme: str = "light", size: tuple[int, int] | None = None) -> None:
    """Emulate a colour scheme and a screen of that size in CSS pixels for the page."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    if size is not None:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def complaints(driver: Any) -> Sequence[str]:
    """Return the errors and warnings of the browser's console."""
    return [line["message"] for line in driver.get_log("browser") if line["level"] != "INFO"]
