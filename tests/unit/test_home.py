"""The addresses of the project: every mention agrees with [project.urls] in pyproject.toml."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.markdown import ROOT

URLS = dict(
    re.findall(
        r'^(\w+) = "(.*)"$',
        (ROOT / "pyproject.toml")
        .read_text(encoding="utf-8")
        .partition("[project.urls]\n")[2]
        .partition("\n[")[0],
        re.MULTILINE,
    )
)
HOME = URLS["Repository"]
NAME = HOME.rpartition("/")[2]
MENTION = re.compile(rf"https?://[\w.-]+/[\w-]+/{NAME}\b")
PATTERNS = ("*.md", "*.yml", "*.yaml", "*.toml", "*.py", "*.html", "*.js", "*.json", "*.txt")


def mentions() -> Iterator[tuple[str, str]]:
    """Yield each file that contains an address of a repository of this name, and the address."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PATTERNS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for path in listed.splitlines():
        if (ROOT / path).is_file():
            for address in MENTION.findall((ROOT / path).read_text(encoding="utf-8")):
                yield path, address


def test_all_mentions_of_the_repository_agree_with_pyproject() -> None:
    found = list(mentions())
    assert {path for path, _ in found} >= {"SECURITY.md", "docs/security.md", "mkdocs.yml"}
    assert [(path, address) for path, address in found if address != HOME] == []


def test_the_package_names_its_repository_tracker_and_security_policy() -> None:
    assert set(URLS) == {"Repository", "Documentation", "Changelog", "Issues", "Security"}
    assert URLS["Issues"] == f"{HOME}/issues"
    for url in URLS.values():
        assert url == HOME or url.startswith(f"{HOME}/")


@pytest.mark.parametrize("name", ["Documentation", "Changelog"])
def test_the_files_that_the_addresses_name_exist(name: str) -> None:
    assert (ROOT / re.split(r"/(?:tree|blob)/main/", URLS[name])[1]).exists()


@pytest.mark.parametrize("document", ["SECURITY.md", "docs/security.md"])
def test_a_vulnerability_is_reported_privately(document: str) -> None:
    assert f"({HOME}/security/advisories/new)" in (ROOT / document).read_text(encoding="utf-8")
