"""The documents: as a site that builds without a warning, and whose links lead somewhere."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from celery_sqs_heartbeat.core.lease import DEFAULT_MAX_LEASE_SECONDS
from celery_sqs_heartbeat.settings import PREFIX, Settings
from celery_sqs_heartbeat.settings.checks import GLOBAL_CHECKS
from celery_sqs_heartbeat.settings.reference import REFERENCE
from tests.support.browser import chromium, complaints, require_chromium
from tests.support.markdown import ROOT, blocks, typed
from tests.support.waiting import wait_until

DOCS = ROOT / "docs"
WITH_COMMANDS = sorted(page for page in DOCS.rglob("*.md") if "```console\n" in page.read_text())
DOCUMENTS = [
    *(str(page.relative_to(ROOT)) for page in WITH_COMMANDS),
    "README.md",
    "CONTRIBUTING.md",
    "example_project/README.md",
]
BUTTON = ".language-console button[data-clipboard-target]"
#: Presses the copy button of each block of commands; returns what each one copies.
COPY_ALL = f"""
  let copied = null;
  addEventListener("copy", () => {{ copied = document.activeElement.value }});
  [...document.querySelectorAll("{BUTTON}")].map(button => {{ button.click(); return copied }})
"""
#: What keeps its terminal until it is stopped.
GOES_ON = re.compile(
    r"celery .*\bworker\b|runserver|flask .*\brun\b|testing\.server|--watch|pipeline stream"
)


class Page(HTMLParser):
    """What a built page has for anchors, and where it points."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name"):
                self.anchors.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name == "src" or (name == "href" and tag == "link"):
                self.loaded.append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def broken(site: Path) -> Iterator[str]:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            url = urlsplit(link)
            # The page for what is not found is shown at any address, and so links from the root.
            if url.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{path.name}: {link} is no file"
            elif target in pages and unquote(url.fragment) not in {"", *pages[target].anchors}:
                yield f"{path.name}: {link} has no such anchor"


def test_the_site_builds_strictly_and_all_its_links_lead_somewhere(site: Path) -> None:
    assert (site / "tutorial.html").is_file()
    assert list(broken(site)) == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        elsewhere = [url for url in Page(path).loaded if urlsplit(url).netloc]
        assert elsewhere == [], path


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    require_chromium()
    with chromium(tmp_path / "profile") as driver:
        yield driver


def test_the_copy_button_takes_commands_without_prompts_and_output(
    site: Path, browser: Any
) -> None:
    for page in WITH_COMMANDS:
        browser.get((site / page.relative_to(DOCS)).with_suffix(".html").as_uri())
        expected = [typed(block) for block in blocks(str(page.relative_to(ROOT)), "console")]
        wait_for_buttons(browser, len(expected))
        # Browsers copy only what a user asks for.
        asked = {"expression": COPY_ALL, "userGesture": True, "returnByValue": True}
        copied = browser.execute_cdp_cmd("Runtime.evaluate", asked)["result"]["value"]
        assert copied == expected, page
        assert complaints(browser) == []


def wait_for_buttons(browser: Any, count: int) -> None:
    wait_until(lambda: len(browser.find_elements("css selector", BUTTON)) == count)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_block_has_a_command_after_one_that_keeps_the_terminal(document: str) -> None:
    for block in blocks(document, "console"):
        *before, _ = typed(block).replace("\\\n", "").splitlines()
        assert [line for line in before if GOES_ON.search(line)] == []


@pytest.mark.parametrize(
    "document", ["README.md", "CHANGELOG.md", "SECURITY.md", "example_project/README.md"]
)
def test_the_links_of_documents_outside_the_site_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        url = urlsplit(link)
        if not url.scheme:
            assert ((ROOT / document).parent / url.path).exists(), link


def test_the_reference_has_every_setting_with_its_default() -> None:
    assert set(REFERENCE) == {*GLOBAL_CHECKS, "queues"}
    settings = Settings()
    shown = {name: entry.default.strip("`") for name, entry in REFERENCE.items()}
    assert shown["max_lease"] == f"{DEFAULT_MAX_LEASE_SECONDS:g}"
    assert shown["interval"].startswith(f"{settings.longest_sleep():g}`")
    for name in ("enabled", "queues", "journal", "status", "status_token", "otel"):
        assert shown[name] == repr(getattr(settings, name))


def test_the_table_of_settings_is_that_of_the_reference() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(DOCS / "make_reference.py"))["with_table"](text)
    assert made == text, "run python docs/make_reference.py"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_the_snippets_of_a_page_are_python_and_name_settings_that_exist(page: Path) -> None:
    known = {f"{PREFIX}{name}" for name in REFERENCE}
    for snippet in blocks(str(page.relative_to(ROOT)), "python"):
        compile(snippet, str(page), "exec")
        named = set(
            re.findall(rf"\bconf\.({PREFIX}\w+)|^    ({PREFIX}\w+)=", snippet, re.MULTILINE)
        )
        assert {name for pair in named for name in pair if name} <= known
