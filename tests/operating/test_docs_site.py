"""The documents as a site: it builds without a warning, and can be read, copied and searched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS
from celery_sqs_heartbeat.settings import NAMES, PREFIX, Settings
from celery_sqs_heartbeat.settings.rules import DEFAULT_FIFO_BATCH
from tests.support.markdown import ROOT, blocks

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that `make docs` builds. It fails on a link or an anchor that leads nowhere."""
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
    assert done.stdout + done.stderr == f"The site is in {folder}: open {folder}/index.html\n"
    return folder


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'(?:\bsrc|<link [^>]*href)="?([^" >]+)', text)
        assert [url for url in loaded if urlsplit(url).netloc] == [], page
        # The page for missing pages is shown at any address.
        if page.name != "404.html":
            local = [urlsplit(url).path for url in loaded if not url.startswith("data:")]
            assert [url for url in local if not (page.parent / url).exists()] == [], page


def test_the_links_of_the_published_readme_lead_to_the_repository_or_stay_within_it() -> None:
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    titles = re.findall(r"^#+ (.*)$", done.stdout, re.MULTILINE)
    # As GitHub makes anchors of headings.
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\(([^)\s]+)\)", done.stdout)
    assert len(links) > 10
    for link in links:
        where, _, path = link.partition("/main/")
        if link.startswith("#"):
            assert link.removeprefix("#") in anchors, link
        else:
            assert where.startswith("https://github.com/"), link
            assert (ROOT / urlsplit(path).path).is_file(), link


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


def test_the_word_check_of_make_lint_finds_each_avoided_word(tmp_path: Path) -> None:
    words = (DOCS / "avoided-words.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(set(words)) == words
    avoided = [line.partition("->")[0] for line in words]
    page = tmp_path / "page.md"
    plain = "The worker receives the message and extends its lease.\n"
    # Within a line, and first.
    texts = [change(each) for change in (str.lower, str.capitalize) for each in avoided]
    page.write_text(plain + "".join(f"{each}\n" for each in texts), encoding="utf-8")
    command = [sys.executable, "-m", "codespell_lib", page]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    reported = [line.partition(" ==>")[0] for line in done.stdout.splitlines()]
    assert reported == [f"{page}:{number}: {each}" for number, each in enumerate(texts, 2)]
