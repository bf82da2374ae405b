"""The status page in a browser."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import Action, LeaseTerms
from tests.support.browser import chromium, complaints, emulate, require_chromium
from tests.support.markdown import ROOT
from tests.support.observed import TOKEN, Observed, observed
from tests.support.waiting import wait_until

#: Extended each second.
QUICK = LeaseTerms(visibility_timeout=20, threshold=19)
PHONE = (360, 740)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require_chromium()
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def scene() -> Iterator[Observed]:
    with observed(name="celery@host") as scene:
        yield scene


@pytest.fixture
def page(driver: Any, scene: Observed) -> Any:
    """The page of a worker with leases of three tasks on two queues."""
    emulate(driver, size=(1200, 900))
    scene.receive("a", task="shop.pay")
    scene.receive("b", task="shop.mail", terms=QUICK)
    scene.receive("c", task="media.encode", queue="https://sqs/1/media-with-a-very-long-name" * 2)
    complaints(driver)
    driver.get(scene.url)
    wait_until(lambda: len(rows(driver)) == 3)
    return driver


def script(driver: Any, code: str, *args: Any) -> Any:
    return driver.execute_script(f"return {code}", *args)


def rows(driver: Any) -> list[Any]:
    return list(driver.find_elements("css selector", ".lease"))


def labels(driver: Any) -> list[str]:
    """What a screen reader reads for each bar."""
    found = script(
        driver, "[...document.querySelectorAll('.track')].map(e => e.getAttribute('aria-label'))"
    )
    return list(found)


def summaries(driver: Any) -> list[str]:
    """The line above the leases of each queue."""
    return list(script(driver, "[...document.querySelectorAll('summary')].map(e => e.textContent)"))


def text(driver: Any, selector: str) -> str:
    return str(script(driver, "document.querySelector(arguments[0]).textContent", selector))


def test_leases_are_bars_by_queue_and_task_and_move(page: Any) -> None:
    headings = script(page, "[...document.querySelectorAll('h3')].map(e => e.textContent)")
    assert [each.split()[0] for each in sorted(headings)] == [
        "media.encode",
        "shop.mail",
        "shop.pay",
    ]
    assert text(page, "#worker") == "celery@host"
    assert text(page, "#in-flight") == "3"
    wait_until(lambda: text(page, "#health-text") == "Keeper is healthy")
    widths = "[...document.querySelectorAll('.left')].map(e => e.style.width).join()"
    before = script(page, widths)
    wait_until(lambda: script(page, widths) != before)
    wait_until(lambda: page.find_elements("css selector", ".mark"))
    assert all(" left, " in label and "extended" in label for label in labels(page))
    assert complaints(page) == []


def test_a_lease_that_ends_disappears_and_its_release_and_calls_are_shown(
    page: Any, scene: Observed
) -> None:
    scene.keeper.release("SECRET-a-1", cause="failed")
    wait_until(lambda: len(rows(page)) == 2)
    wait_until(lambda: "released" in text(page, "#happenings"))
    assert "(failed)" in text(page, "#happenings")
    assert "shop.pay" in text(page, "#happenings")
    wait_until(lambda: page.find_elements("css selector", "#chart rect.change"))
    label = page.find_element("id", "chart").get_attribute("aria-label")
    assert "calls this minute" in label


def test_message_groups_are_shown_if_there_are_any(page: Any, scene: Observed) -> None:
    cards = page.find_elements("css selector", ".of-groups")
    assert [card.is_displayed() for card in (*cards, page.find_element("id", "stops"))] == [
        False
    ] * 4
    name = "<b>tenant/" + "y" * 118
    for group in ("A17", name):
        handles = [scene.receive_in_order(group, number) for number in range(3)]
    wait_until(lambda: (text(page, "#groups"), text(page, "#behind")) == ("2", "4"))
    assert text(page, "#stopped") == "0"
    assert all(card.is_displayed() for card in cards)
    assert sum(", behind another, " in f", {label}" for label in labels(page)) == 4
    assert any("(4 behind others) in 2 groups" in text for text in summaries(page))
    scene.keeper.release(handles[0], 600, cause="failed")
    wait_until(lambda: name in text(page, "#stops"))
    assert "failed" in text(page, "#stops")
    assert "hidden for 10 min more" in text(page, "#stops")
    assert text(page, "#stopped") == "1"
    emulate(page, size=PHONE)
    assert script(page, "document.documentElement.scrollWidth") <= PHONE[0]
    # When it is received again here, the group continues.
    scene.receive_in_order(name, 9)
    wait_until(lambda: not page.find_element("id", "stops").is_displayed())
    assert complaints(page) == []


def test_a_loss_is_shown_on_its_lease_and_in_the_list(page: Any, scene: Observed) -> None:
    scene.sqs.answer = lambda call: [
        Outcome.LOST if entry.action is Action.EXTEND else Outcome.DONE for entry in call.entries
    ]
    wait_until(lambda: any(", lost" in label for label in labels(page)))
    wait_until(lambda: page.find_elements("css selector", "[data-what=lost]"))
    assert page.find_elements("css selector", ".lease[data-status=lost]")


def test_text_of_a_message_is_never_read_as_html(page: Any, scene: Observed) -> None:
    name = "<img src=x onerror='document.title=1'>"
    scene.keeper.release(scene.receive("d", task=name), cause=name)
    scene.receive("e", task=name, queue=f"https://sqs/1/{name}")
    wait_until(lambda: name in text(page, "#happenings") and name in text(page, "#queues"))
    assert page.find_elements("css selector", "main img") == []
    assert page.title == "SQS leases"


def test_a_dead_keeper_and_a_worker_that_is_gone_are_shown(page: Any, scene: Observed) -> None:
    assert page.title == "SQS leases"
    scene.keeper.stop()
    wait_until(lambda: "dead" in text(page, "#health-text"))
    wait_until(lambda: page.title == "⚠ Keeper dead · SQS leases")
    scene.server.stop()
    wait_until(lambda: "does not answer" in text(page, "#health-text"))
    assert page.find_element("id", "trouble").is_displayed()
    assert page.title == "⚠ No answer · SQS leases"
    assert re.search(r"The last answer came at \d.*, [\d.]+ s ago;", text(page, "#trouble"))


def test_running_and_waiting_leases_look_different_and_are_counted(
    page: Any, scene: Observed
) -> None:
    scene.keeper.note_start("SECRET-a-1")
    wait_until(lambda: text(page, "#running") == "1")
    assert (text(page, "#in-flight"), text(page, "#waiting")) == ("3", "2")
    assert "2 leases: 1 running, 1 waiting" in text(page, "#queues summary")
    assert sum(", running for " in label for label in labels(page)) == 1
    assert sum(", waiting, " in label for label in labels(page)) == 2
    fills = [
        style(page, f".lease[data-phase={phase}] .left", "background-color")
        for phase in ("running", "waiting")
    ]
    assert fills[0] != fills[1]


@pytest.mark.parametrize("clipboard", ["its own", "none"])
def test_an_id_can_be_copied_with_the_keyboard_too(page: Any, clipboard: str) -> None:
    if clipboard == "none":
        # As on an address without TLS.
        script(page, "void Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    button = page.find_element("css selector", ".lease .id")
    message = button.text
    button.send_keys("\n")
    wait_until(lambda: text(page, "#copied") == f"Copied the message id {message}.")
    wait_until(lambda: button.text == message)
    assert script(page, "document.activeElement") == button
    # The page shows and hides its own fields with each poll.
    entry = script(page, "document.body.appendChild(document.createElement('textarea'))")
    entry.send_keys("\ue009v")
    wait_until(lambda: entry.get_attribute("value") == message)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(page: Any, scheme: str) -> None:
    emulate(page, scheme=scheme, size=(1200, 900))
    for selector in ("body", ".quiet", "#health", "summary", ".left-text", "dt", ".legend"):
        assert contrast(page, selector) >= 4.5, selector
    is_dark = luminance(style(page, "body", "backgroundColor")) < 0.2
    assert is_dark is (scheme == "dark")


def style(page: Any, selector: str, name: str) -> str:
    code = "getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    return str(script(page, code, selector, name))


def luminance(color: str) -> float:
    """WCAG's relative luminance of "rgb(1, 2, 3)"."""
    parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(page: Any, selector: str) -> float:
    """Between the text and the nearest background that is painted."""
    code = """(element => {
        while (getComputedStyle(element).backgroundColor === "rgba(0, 0, 0, 0)")
            element = element.parentElement;
        return getComputedStyle(element).backgroundColor;
    })(document.querySelector(arguments[0]))"""
    pair = (style(page, selector, "color"), str(script(page, code, selector)))
    darker, lighter = sorted(map(luminance, pair))
    return (lighter + 0.05) / (darker + 0.05)


def test_a_phone_shows_it_without_scrolling_sideways(page: Any, scene: Observed) -> None:
    scene.keeper.release(scene.receive("f" * 100, task="a.task." + "name" * 30))
    emulate(page, size=PHONE)
    wait_until(lambda: "released" in text(page, "#happenings"))
    assert script(page, "document.documentElement.clientWidth") == PHONE[0]
    assert script(page, "document.documentElement.scrollWidth") <= PHONE[0]
    bar = page.find_element("css selector", ".track").size["width"]
    assert bar > PHONE[0] * 0.7


def test_the_keyboard_reaches_the_queues_and_folds_them(page: Any, scene: Observed) -> None:
    from selenium.webdriver.common.keys import Keys

    scene.keeper.release(scene.receive("d"))
    wait_until(lambda: page.find_element("id", "happenings").is_displayed())
    wait_until(lambda: len(rows(page)) == 3)
    reached: list[str] = []
    for _ in range(7):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(script(page, "document.activeElement.tagName + document.activeElement.id"))
    # The skip link, two queues with three ids of messages between them, and the last releases.
    assert sorted(reached) == ["A", *["BUTTON"] * 3, "OLhappenings", *["SUMMARY"] * 2]
    while page.switch_to.active_element.tag_name != "summary":
        page.switch_to.active_element.send_keys(Keys.TAB)
    assert style(page, ":focus", "outlineStyle") == "solid"
    page.switch_to.active_element.send_keys(Keys.ENTER)
    before = text(page, "#tick")
    wait_until(lambda: text(page, "#tick") != before)
    # The folded queues and the focus do not change with a poll.
    assert script(page, "document.querySelectorAll('details[open]').length") == 1
    assert page.switch_to.active_element.tag_name == "summary"


def test_the_page_requests_a_token_and_does_not_show_it(driver: Any) -> None:
    with observed(token=TOKEN) as scene:
        scene.receive("a")
        driver.get(scene.url)
        wait_until(lambda: driver.find_element("id", "token-form").is_displayed())
        wait_until(lambda: text(driver, "#health-text") == "The worker needs its token")
        wait_until(lambda: driver.title == "⚠ Token needed · SQS leases")
        # The page shows nothing that it does not know yet.
        assert not driver.find_element("id", "no-happenings").is_displayed()
        entry = driver.find_element("id", "token")
        entry.send_keys("wrong\n")
        wait_until(lambda: "not the right token" in text(driver, "#trouble"))
        entry.send_keys(f"{TOKEN}\n")
        wait_until(lambda: len(rows(driver)) == 1)
        assert not driver.find_element("id", "token-form").is_displayed()
        wait_until(lambda: text(driver, "#health-text") == "Keeper is healthy")
        wait_until(lambda: driver.title == "SQS leases")

        # A query is sent to the server, and so may be in a log: no token is taken from there.
        driver.get("about:blank")
        driver.get(f"{scene.url}/?token={TOKEN}")
        wait_until(lambda: driver.find_element("id", "token-form").is_displayed())
        assert driver.current_url == f"{scene.url}/"
        assert len(rows(driver)) == 0

        driver.get("about:blank")
        driver.get(f"{scene.url}/#token={TOKEN}")
        wait_until(lambda: len(rows(driver)) == 1)
        assert driver.current_url == f"{scene.url}/"
        stored = "localStorage.length + sessionStorage.length + document.cookie.length"
        assert script(driver, stored) == 0


def test_the_pictures_of_the_documents_can_be_made(tmp_path: Path) -> None:
    require_chromium()
    shoot = runpy.run_path(str(ROOT / "docs" / "shoot_status.py"))["shoot"]
    shoot(tmp_path)
    made = {picture.name for picture in tmp_path.glob("status-*.png")}
    assert made == {picture.name for picture in (ROOT / "docs" / "img").glob("status-*.png")}
