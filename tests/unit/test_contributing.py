"""The tiers run every test, CI runs both, each promise names its tests, and addresses agree."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.acceptance.promises import FOLDER, PAGES, PROMISES, promised
from tests.support.markdown import ROOT, commands
from tests.versions import supported

GUIDE = "CONTRIBUTING.md"


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_each_make_command_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    for document in (GUIDE, "README.md", ".github/workflows/test.yml", ".ci/run"):
        named = set(re.findall(r"(?:`|run: |^)make ([a-z-]+)", read(document), re.MULTILINE))
        assert named, document
        assert named <= targets, document


def test_the_second_tier_runs_everything_that_the_first_leaves_to_it() -> None:
    dry = ["make", "--dry-run", "--no-print-directory", "test-all"]
    recipes = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    run = tuple(re.findall(r" (tests/[\w/.]+)", recipes))
    left = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^(@|pytestmark = |\s+marks=)pytest\.mark\.thorough", path.read_text(), re.M)
    ]
    assert len(left) > 10
    assert [path for path in left if not path.startswith(run)] == []


def test_the_tests_that_the_guide_runs_exist() -> None:
    runs = [command for command in commands(GUIDE) if "-m pytest" in command]
    assert len(runs) == 2
    for run in runs:
        path, _, name = run.rpartition(" ")[2].strip("'").partition("::")
        assert f"def {name.partition('[')[0]}" in read(path)


def test_the_workflow_runs_both_tiers_on_every_python_that_is_claimed() -> None:
    jobs = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]
    claimed = set(supported(read("pyproject.toml")))
    steps = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert "make test" in steps["test"]
    assert "make test-all" in steps["test-all"]
    assert claimed <= set(jobs["test"]["strategy"]["matrix"]["python"])
    (setup,) = (s for s in jobs["test-all"]["steps"] if "setup-python" in s.get("uses", ""))
    assert claimed <= set(setup["with"]["python-version"].split())


def test_the_hooks_are_the_tools_of_make_lint() -> None:
    (repo,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in repo["hooks"]}
    recipe = read("Makefile").partition("\nlint:")[2].partition("\n\n")[0]
    assert tools == set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe))


@pytest.mark.parametrize("words", PROMISES)
def test_each_promise_is_in_the_readme_or_its_pages(words: str) -> None:
    readme, *others = PAGES
    assert any(words in " ".join(read(page).split()) for page in PAGES)
    assert [page for page in others if f"]({page})" not in read(readme)] == []


def test_the_limits_name_the_exceptions_to_the_first_promise_that_the_docs_explain() -> None:
    claim, _, rest = read("README.md").partition("\n## ")
    limits = _section(rest, "Limits")
    explained = _section(read("docs/motivation.md"), "What can still run twice")
    assert "(#limits)" in claim
    assert "docs/motivation.md#what-can-still-run-twice" in limits
    exceptions = re.findall(r"^\| \*\*(.+?)\*\*", explained, re.MULTILINE)
    assert len(exceptions) == 8
    assert re.findall(r"\*\*(.+?)\*\*", limits) == exceptions


def _section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_each_promise_names_tests_that_exist() -> None:
    # tests/acceptance/conftest.py marks all others as thorough, without a look at their parameters.
    files = sorted({f"{FOLDER}{name.partition('::')[0]}" for name in promised()})
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *files]
    command += ["-m", "not thorough", "-p", "no:cacheprovider"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout
    there = {line.removeprefix(FOLDER) for line in collected.stdout.splitlines()}
    gone = promised() - there
    assert not gone, f"tests/acceptance/promises.py names tests that are gone: {sorted(gone)}"


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


@pytest.mark.parametrize("document", ["SECURITY.md", "docs/security.md"])
def test_a_vulnerability_is_reported_privately(document: str) -> None:
    assert f"({HOME}/security/advisories/new)" in (ROOT / document).read_text(encoding="utf-8")
