"""The report in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.pipeline.report.page import render
from celery_sqs_heartbeat.pipeline.report.queries import Found
from tests.pipeline.test_report import named
from tests.support.browser import chromium, complaints, emulate, require_chromium

pytestmark = pytest.mark.thorough

PHONE = (390, 800)


@pytest.fixture(scope="module")
def address(found: Found, tmp_path_factory: pytest.TempPathFactory) -> str:
    require_chromium()
    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(render(named(found, "a.task." + "name" * 30)))
    return file.as_uri()


@pytest.fixture(scope="module")
def driver(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(Path(tmp_path_factory.mktemp("profile"))) as driver:
        driver.get(address)
        yield driver


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_colour_scheme_without_complaints(driver: Any, scheme: str) -> None:
    emulate(driver, scheme=scheme)
    code = "return getComputedStyle(document.body).backgroundColor"
    red = int(driver.execute_script(code).removeprefix("rgb(").split(",")[0])
    assert (red < 60) is (scheme == "dark")
    assert complaints(driver) == []


def test_a_phone_shows_it_without_scrolling_sideways(driver: Any) -> None:
    emulate(driver, size=PHONE)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    widths = driver.execute_script(
        "return [...document.querySelectorAll('.plot svg')].map(e => e.clientWidth)"
    )
    assert min(widths) > PHONE[0] * 0.6


@pytest.mark.parametrize("width", [390, 500, 1400])
def test_no_table_is_a_box_with_its_own_scrollbar(driver: Any, width: int) -> None:
    emulate(driver, size=(width, 900))
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('.wide')].filter(e => e.checkVisibility()).map("
        "e => [e.ariaLabel, e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth])"
    )
    assert "Duplicates by root cause" in {name for name, *_ in boxes}
    assert [name for name, down, across in boxes if down > 0 or across > 0] == []


def test_a_phone_names_each_number_of_a_wide_table(driver: Any) -> None:
    emulate(driver, size=PHONE)
    shown = driver.execute_script(
        "return [...document.querySelector('#duplicates .listed tbody tr').cells].map("
        "e => getComputedStyle(e, '::before').content + e.innerText)"
    )
    assert '"pairs"4' in shown
    assert '"both succeeded"3' in shown


def test_the_keyboard_reaches_the_tables_and_opens_them(driver: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    emulate(driver, size=(1200, 900))
    summary = driver.find_element("css selector", "#duplicates summary")
    driver.execute_script("arguments[0].focus()", summary)
    summary.send_keys(Keys.ENTER)
    opened = driver.find_element("css selector", "#duplicates details[open] .wide")
    assert opened.is_displayed()
    summary.send_keys(Keys.TAB)
    assert driver.switch_to.active_element == opened


def test_folded_parts_are_printed(driver: Any) -> None:
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    folded = driver.find_element("css selector", "#recoveries details .wide")
    assert folded.size["height"] > 0
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
