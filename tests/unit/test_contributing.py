"""Everything that CONTRIBUTING, the hooks and the workflow name exists, and claims are tested."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.support.interpreters import supported
from tests.support.markdown import ROOT, commands

GUIDE = "CONTRIBUTING.md"
MAKE = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", [GUIDE, "README.md", ".github/workflows/test.yml", ".ci/run"])
def test_each_make_command_is_a_target(document: str) -> None:
    named = set(re.findall(r"(?:`|run: |^)make ([a-z-]+)", read(document), re.MULTILINE))
    assert named
    assert named <= MAKE


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


def test_each_path_of_the_guide_exists() -> None:
    text = read(GUIDE)
    linked = re.findall(r"\]\(([\w./-]+)\)", text)
    named = re.findall(
        r"`((?:tests|docs|celery_sqs_heartbeat|cli|settings|pipeline)/[\w./]*)`", text
    )
    assert len(linked) > 4
    assert len(named) > 20
    package = ROOT / "celery_sqs_heartbeat"
    missing = [
        path
        for path in linked + named
        if not any((base / path).exists() for base in (ROOT, package))
    ]
    assert missing == []


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
