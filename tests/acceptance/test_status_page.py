"""The status page in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import Action, LeaseTerms
from tests.support.browser import chromium, complaints, emulate, require_chromium
from tests.support.observed import TOKEN, observed
from tests.support.waiting import wait_until

#: Extended each second.
QUICK = LeaseTerms(visibility_timeout=20, threshold=19)
PHONE = (360, 740)
#: No message may make the page do anything.
NAME = "<img src=x onerror='document.title=1'>"


def script(page: Any, code: str, *args: Any) -> Any:
    return page.execute_script(f"return {code}", *args)


def find(page: Any, selector: str) -> list[Any]:
    return list(page.find_elements("css selector", selector))


def text(page: Any, selector: str) -> str:
    return str(script(page, "document.querySelector(arguments[0]).textContent", selector))


def labels(page: Any) -> list[str]:
    """What a screen reader reads for each bar."""
    tracks = "[...document.querySelectorAll('.track')].map(e => e.getAttribute('aria-label'))"
    return list(script(page, tracks))


def test_the_page_shows_leases_and_how_they_end_and_what_is_wrong(tmp_path: Path) -> None:
    require_chromium()
    with chromium(tmp_path) as page, observed(name="celery@host", token=TOKEN) as scene:
        scene.receive("a", task="shop.pay")
        scene.receive("b", task="shop.mail", terms=QUICK)
        page.get(scene.url)
        wait_until(lambda: page.find_element("id", "token-form").is_displayed())
        page.find_element("id", "token").send_keys(f"{TOKEN}\n")
        wait_until(lambda: len(find(page, ".lease")) == 2)
        kept = "localStorage.length + sessionStorage.length + document.cookie.length"
        assert script(page, kept) == 0
        # The refusal is in the browser's log, too.
        assert all("401" in line for line in complaints(page))

        assert (text(page, "#worker"), text(page, "#in-flight")) == ("celery@host", "2")
        wait_until(lambda: text(page, "#health-text") == "Keeper is healthy")
        wait_until(lambda: find(page, ".mark"))
        assert all(" left, " in label for label in labels(page))
        scene.keeper.note_start("SECRET-a-1")
        wait_until(lambda: text(page, "#running") == "1")
        assert "2 leases: 1 running, 1 waiting" in text(page, "#queues summary")

        scene.keeper.release("SECRET-a-1", cause="failed")
        wait_until(lambda: "(failed)" in text(page, "#happenings"))
        assert "shop.pay" in text(page, "#happenings")
        scene.keeper.release(scene.receive("c", task=NAME), cause=NAME)
        first, *_ = (scene.receive_in_order(NAME, number) for number in range(3))
        wait_until(lambda: (text(page, "#groups"), text(page, "#behind")) == ("1", "2"))
        scene.keeper.release(first, 600, cause="failed")
        wait_until(lambda: NAME in text(page, "#stops") and NAME in text(page, "#happenings"))
        assert "hidden for 10 min more" in text(page, "#stops")
        assert find(page, "main img") == []
        emulate(page, size=PHONE)
        assert script(page, "document.documentElement.scrollWidth") <= PHONE[0]

        scene.sqs.answer = lambda call: [
            Outcome.LOST if entry.action is Action.EXTEND else Outcome.DONE
            for entry in call.entries
        ]
        wait_until(lambda: find(page, ".lease[data-status=lost]"))
        assert complaints(page) == []
        scene.keeper.stop()
        wait_until(lambda: page.title == "⚠ Keeper dead · SQS leases")
        scene.server.stop()
        wait_until(lambda: page.title == "⚠ No answer · SQS leases")
        assert page.find_element("id", "trouble").is_displayed()
