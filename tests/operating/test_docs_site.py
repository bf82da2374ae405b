"""The documents as a site: it builds without a warning, and can be read, searched and followed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS
from celery_sqs_heartbeat.settings import NAMES, PREFIX, Settings
from celery_sqs_heartbeat.settings.rules import DEFAULT_FIFO_BATCH
from tests.support.browser import chromium, complaints, emulate, require_chromium
from tests.support.markdown import ROOT, blocks, typed, typed_lines
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
ANY_BUTTON = "pre button[data-clipboard-target]"
#: Presses the copy button of each block of commands; returns what each one copies.
COPY_ALL = f"""
  let copied = null;
  addEventListener("copy", () => {{ copied = document.activeElement.value }});
  [...document.querySelectorAll("{BUTTON}")].map(button => {{ button.click(); return copied }})
"""
#: Returns the addresses of the pages that a search has found.
RESULTS = """
  const links = document.querySelectorAll(".md-search-result__item > a");
  return [...links].map(link => link.href);
"""
#: Commands that keep their terminal until they are stopped.
GOES_ON = re.compile(
    r"celery .*\bworker\b|runserver|flask .*\brun\b|testing\.server|--watch|http\.server"
)
DESKTOP, PHONE = (1400, 1000), (420, 1000)
#: The columns of code that a desktop shows at once.
COLUMNS = 100
#: What is hard to read: a broken name in a table, a copy button on its code, a scroll bar below the
#: page or below code of few columns.
UNREADABLE = f"""
  const lines = element => {{
    const range = document.createRange();
    range.selectNodeContents(element);
    return new Set([...range.getClientRects()].map(box => box.top)).size;
  }};
  const names = [...document.querySelectorAll(".md-typeset td code")]
    .filter(name => !/\\s/.test(name.textContent) && lines(name) > 1)
    .map(name => `broken: ${{name.textContent}}`);
  const code = [...document.querySelectorAll(".md-typeset pre > code")].flatMap(code => {{
    const button = code.parentElement.querySelector(".md-code__nav, .md-clipboard");
    const isUnder = button.getBoundingClientRect().left < code.getBoundingClientRect().right;
    const columns = Math.max(...code.textContent.split("\\n").map(line => line.length));
    const isCut = innerWidth >= {DESKTOP[0]} && columns <= {COLUMNS}
      && code.scrollWidth > code.clientWidth;
    const faults = [...(isUnder ? ["under its button"] : []), ...(isCut ? ["cut"] : [])];
    return faults.map(fault => `${{fault}}: ${{code.textContent}}`);
  }});
  const page = document.documentElement;
  const wide = page.scrollWidth > page.clientWidth ? ["the page is wider than the screen"] : [];
  return [...names, ...code, ...wide];
"""
#: journal.md and pipeline.md have it outside code: the site takes its brackets for HTML.
UNMARKED = {"map<string,string>": "map"}


class Page(HTMLParser):
    """The anchors of a built page, and its links."""

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


class Cells(HTMLParser):
    """The texts of the cells of all tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._is_in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("td", "th"):
            self.texts.append("")
            self._is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.texts[-1] += data


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The site that `make docs` builds, and what that prints."""
    folder = tmp_path_factory.mktemp("site")
    # No test installs anything in its own environment.
    stamp = f"{sys.prefix}/test.stamp"
    done = subprocess.run(
        ["make", "docs", f"SITE={folder}", f"VENV={sys.prefix}", f"--old-file={stamp}"],
        cwd=ROOT,
        # As if no make ran this test: otherwise this make would print more.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(made: tuple[Path, str]) -> Path:
    """The built site."""
    return made[0]


def broken(site: Path) -> Iterator[str]:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            url = urlsplit(link)
            # The page for missing pages is shown at any address, so its links start at the root.
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


def test_make_docs_says_where_the_site_is_and_no_more(made: tuple[Path, str]) -> None:
    folder, printed = made
    assert printed == f"The site is in {folder}: open {folder}/index.html\n"
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "`make docs` builds them as a site in `build/docs`" in guide


def test_the_tables_say_on_the_site_what_they_say_on_github(site: Path) -> None:
    github = MarkdownIt("commonmark").enable("table")
    count = 0
    for page in sorted(DOCS.rglob("*.md")):
        built = (site / page.relative_to(DOCS)).with_suffix(".html")
        expected = Cells(github.render(page.read_text(encoding="utf-8"))).texts
        shown = Cells(built.read_text(encoding="utf-8")).texts
        assert list(map(as_shown, shown)) == list(map(as_shown, expected)), page
        count += len(shown)
    assert count > 1_000


def as_shown(text: str) -> str:
    return UNMARKED.get(text, text)


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


def test_names_stay_whole_and_code_is_seen_beside_its_copy_button(site: Path, browser: Any) -> None:
    unreadable = {}
    for size in (DESKTOP, PHONE):
        emulate(browser, size=size)
        for page in sorted(DOCS.rglob("*.md")):
            name = page.relative_to(DOCS)
            browser.get((site / name).with_suffix(".html").as_uri())
            count = len(browser.find_elements("css selector", ".md-typeset pre > code"))
            wait_for_buttons(browser, count, ANY_BUTTON)
            if found := browser.execute_script(UNREADABLE):
                unreadable[f"{name} at {size[0]}"] = found
    assert unreadable == {}


@pytest.mark.parametrize(("scheme", "shown"), [("light", "default"), ("dark", "slate")])
def test_the_site_is_as_light_or_dark_as_the_reader_prefers(
    site: Path, browser: Any, scheme: str, shown: str
) -> None:
    emulate(browser, size=PHONE, scheme=scheme)
    browser.get((site / "index.html").as_uri())
    body = browser.find_element("css selector", "body")
    wait_until(lambda: body.get_attribute("data-md-color-scheme") == shown)


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of the site on a server: browsers do not let it search from files."""
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *args: object) -> None:
        """Ignore a request."""


@pytest.mark.parametrize("name", ["release_delay", f"{PREFIX}release_delay"])
def test_the_search_finds_a_setting_wherever_it_is_named(
    served: str, browser: Any, name: str
) -> None:
    pages = {
        str(page.relative_to(DOCS).with_suffix(".html"))
        for page in DOCS.rglob("*.md")
        if f"{PREFIX}release_delay" in page.read_text(encoding="utf-8")
    }
    assert len(pages) > 3
    browser.get(f"{served}/index.html?q={name}")
    # Among the first: the search lists ten pages at once.
    wait_until(lambda: pages <= set(results(browser)), tell=lambda: str(results(browser)))


def results(browser: Any) -> list[str]:
    """Return the pages that the search lists, the best first."""
    # In one step: the search may replace its list at any time.
    urls = browser.execute_script(RESULTS)
    return [urlsplit(url).path.removeprefix("/") for url in urls]


def wait_for_buttons(browser: Any, count: int, selector: str = BUTTON) -> None:
    wait_until(lambda: len(browser.find_elements("css selector", selector)) == count)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_block_has_a_command_after_one_that_keeps_the_terminal(document: str) -> None:
    for block in blocks(document, "console"):
        *before, _ = typed_lines(block)
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


def test_the_links_of_the_published_readme_lead_to_the_repository_or_stay_within_it() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "hatch_fancy_pypi_readme", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    anchors = {anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    for link in links:
        where, _, path = link.partition("/main/")
        if link.startswith("#"):
            assert link.removeprefix("#") in anchors, link
        else:
            assert where.startswith("https://github.com/"), link
            assert (ROOT / urlsplit(path).path).is_file(), link


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_the_front_pages_project_is_that_of_the_readme() -> None:
    project, *others = blocks("docs/index.md", "python")
    assert project == blocks("README.md", "python")[0]
    assert others == []


def test_the_reference_has_every_setting_with_its_default() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| `{PREFIX}(\w+)` \| (.*?) \|", text, re.MULTILINE)
    shown = {name: default.strip("`") for name, default in rows}
    assert sorted(name for name, _ in rows) == sorted(NAMES)
    settings = Settings()
    for name in ("fifo_waiting", "flush_timeout", "keeper_timeout"):
        assert shown[name] == f"{getattr(settings, name):g}"
    assert shown["fifo_batch"] == str(DEFAULT_FIFO_BATCH)
    assert shown["max_lease"] == f"{DEFAULT_MAX_LEASE_SECONDS:g}"
    assert shown["interval"].startswith(f"{settings.longest_sleep():g}`")
    for name in ("enabled", "queues", "journal", "status", "status_token", "otel"):
        assert shown[name] == repr(getattr(settings, name))


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_the_snippets_of_a_page_are_python_and_name_settings_that_exist(page: Path) -> None:
    known = {f"{PREFIX}{name}" for name in NAMES}
    for snippet in blocks(str(page.relative_to(ROOT)), "python"):
        compile(snippet, str(page), "exec")
        named = set(
            re.findall(rf"\bconf\.({PREFIX}\w+)|^    ({PREFIX}\w+)=", snippet, re.MULTILINE)
        )
        assert {name for pair in named for name in pair if name} <= known
