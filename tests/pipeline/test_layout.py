"""Which modules of the pipeline may import which: from the journal to the report."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import celery_sqs_heartbeat

PACKAGE = "celery_sqs_heartbeat"
PIPELINE = f"{PACKAGE}.pipeline"
ROOT = Path(celery_sqs_heartbeat.__file__).parent

#: Each folder may import those before it, and the shared modules beside the folders.
FOLDERS = ("storage", "tables", "tuning", "engine", "report")
SHARED = {"errors", "options", "phrases", "prices", "schema"}
#: These put the folders together. A folder after them may import `engines`.
ENTRIES = {"__main__", "submit", "stream_command", "engines"}

#: What the pipeline may import of the package, besides itself.
MAY_USE = {"common", "errors", "journal", "leases", "settings"}


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in ROOT.rglob("*.py")
    }


@cache
def imported(module: str) -> set[str]:
    """Return the modules of the package that one imports, wherever in it, types included."""
    return set(_imported(module))


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            assert node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner in modules() or f"{inner}.__init__" in modules()
                yield inner if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith(PACKAGE))


def of(*parts: str) -> list[str]:
    start = ".".join((PACKAGE, *parts)) + "."
    return sorted(each for each in modules() if each.startswith(start))


def part(module: str) -> str:
    """Return the folder of the pipeline that a module is in, or the name of one beside them."""
    return module.removeprefix(f"{PIPELINE}.").partition(".")[0]


@pytest.mark.parametrize("module", of("pipeline"))
def test_the_pipeline_uses_nothing_of_the_package_but_what_lies_below_it(module: str) -> None:
    of_others = {each for each in imported(module) if not each.startswith(f"{PIPELINE}.")}
    assert {each.split(".")[1] for each in of_others} <= MAY_USE


@pytest.mark.parametrize("module", of("journal"))
def test_the_journal_uses_neither_the_pipeline_nor_the_cli(module: str) -> None:
    assert {each.split(".")[1] for each in imported(module)}.isdisjoint({"cli", "pipeline"})


@pytest.mark.parametrize("module", of("pipeline"))
def test_folders_import_those_before_them(module: str) -> None:
    own = part(module)
    used = {part(each) for each in imported(module) if each.startswith(f"{PIPELINE}.")} - {own}
    if own in FOLDERS:
        before = set(FOLDERS[: FOLDERS.index(own)])
        assert used <= before | SHARED | ({"engines"} if own == "report" else set())
    elif own in SHARED:
        assert used <= SHARED
    else:
        assert own in ENTRIES | {"__init__"}


def test_no_module_of_the_pipeline_is_in_a_circle() -> None:
    TopologicalSorter({module: imported(module) for module in of("pipeline")}).prepare()
