"""Counts the package's code: `python -m tests.size` prints each part, and fails above a limit.

A line of code is one with a token of code: no blank line, comment or docstring. The core is what
a worker and its keeper's process load, late imports and `contrib` included. Complexity is
McCabe's: one for each function, and one for each branch in it.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "celery_sqs_heartbeat"
TESTS = ROOT / "tests"
#: The modules that workers and keepers start with. The core is what they import, at once or later.
STARTS = (
    "celery_sqs_heartbeat/__init__.py",
    "celery_sqs_heartbeat/worker/step.py",
    "celery_sqs_heartbeat/keeper/__main__.py",
)
#: The most files and lines of code of each part. Lower a limit whenever less is left. Raise none
#: without a written reason.
LIMITS = {"core": (91, 11_040), "package": (162, 18_680), "tests": (240, 30_800)}
#: How far a part may lie below its limits before they have to be lowered.
SLACK = 0.02
#: The most lines of one file, blank lines and docstrings included.
LONGEST_FILE = 400
#: It rose from 2.71 because hundreds of small functions went that only passed a call on: the sum of
#: all functions fell.
MEAN_COMPLEXITY = 2.9
ASSET_LINES = 2_800

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
)


@dataclass(frozen=True)
class Size:
    """How large some files are together.

    Attributes:
        lines: Lines of code.
        tokens: Python's tokens in them.
        complexity: The sum over all functions.
    """

    files: int = 0
    lines: int = 0
    tokens: int = 0
    functions: int = 0
    complexity: int = 0

    @property
    def mean_complexity(self) -> float:
        """The mean complexity of a function."""
        return self.complexity / max(1, self.functions)

    def __add__(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(_figures(self), _figures(other), strict=True)))


def size_of(paths: Iterable[Path]) -> Size:
    """Return the size of Python files."""
    return sum((_size_of_file(path) for path in paths), Size())


def package() -> list[Path]:
    """Return the package's Python files."""
    return sorted(PACKAGE.rglob("*.py"))


def tests() -> list[Path]:
    """Return the tests' Python files."""
    return sorted(TESTS.rglob("*.py"))


def assets() -> int:
    """Return how many lines the package's other files have: pages, styles, rules, templates."""
    texts = (
        each for each in PACKAGE.rglob("*") if each.is_file() and each.suffix not in {".py", ".pyc"}
    )
    return sum(1 for each in texts for line in each.read_text().splitlines() if line.strip())


def core() -> list[Path]:
    """Return the files that a worker and its keeper's process load."""
    found: set[Path] = set()
    left = [ROOT / start for start in STARTS] + sorted((PACKAGE / "contrib").glob("*.py"))
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported_by(path)
    return sorted(found)


def _imported_by(path: Path) -> Iterator[Path]:
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        left += [] if is_for_types else ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from _files_of(f"{node.module}.{alias.name}")


def _files_of(name: str) -> Iterator[Path]:
    """Yield the files that an import of that name loads, those of its packages included."""
    path = ROOT
    for part in name.split("."):
        path /= part
        for each in (path / "__init__.py", path.with_suffix(".py")):
            if path.is_relative_to(PACKAGE) and each.exists():
                yield each


@functools.cache
def _size_of_file(path: Path) -> Size:
    source = path.read_text()
    nodes = list(ast.walk(tree := ast.parse(source)))
    lines: set[int] = set()
    tokens = 0
    docstrings = {line for node in [tree, *nodes] for line in _docstring_of(node)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if token.type not in _NO_CODE and not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
            tokens += 1
    functions = sum(isinstance(node, _FUNCTIONS) for node in nodes)
    branches = sum(isinstance(node, _BRANCHES) for node in nodes)
    branches += sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return Size(1, len(lines), tokens, functions, functions + branches)


def _docstring_of(node: ast.AST) -> range:
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    return range(0)


def _figures(size: Size) -> tuple[int, ...]:
    return size.files, size.lines, size.tokens, size.functions, size.complexity


def main() -> None:
    """Print the sizes of the package, its folders, its core and the tests.

    Raises:
        SystemExit: One is above its limit, or so far below it that it has to be lowered.
    """
    folders = sorted(each for each in PACKAGE.iterdir() if any(each.glob("*.py")))
    parts = {"core": core(), "package": package(), "tests": tests()}
    parts |= {f"  {each.name}": sorted(each.rglob("*.py")) for each in folders}
    sizes = {name: size_of(paths) for name, paths in parts.items()}
    write = sys.stdout.write
    write(
        f"{'':14}{'files':>7}{'limit':>7}{'lines':>8}{'limit':>8}{'tokens':>9}{'complexity':>12}\n"
    )
    for name, size in sizes.items():
        files, lines = (f"{limit:,}" for limit in LIMITS[name]) if name in LIMITS else ("", "")
        counts = f"{size.files:7,}{files:>7}{size.lines:8,}{lines:>8}{size.tokens:9,}"
        write(f"{name:14}{counts}{size.mean_complexity:12.2f}\n")
    write(f"assets: {assets():,} lines of at most {ASSET_LINES:,}\n")
    if faults := list(_faults(sizes)):
        sys.exit("\n".join(faults))


def _faults(sizes: Mapping[str, Size]) -> Iterator[str]:
    for name, limits in LIMITS.items():
        for what, limit in zip(("files", "lines"), limits, strict=True):
            actual = getattr(sizes[name], what)
            if actual > limit:
                yield f"{name} has {actual:,} {what}, {actual - limit:,} above its limit"
            elif actual < limit * (1 - SLACK):
                yield f"{name} has only {actual:,} {what}: lower the limit in tests/size.py"
    for path in package():
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE:
            yield f"{path.relative_to(ROOT)} has {lines} lines, at most {LONGEST_FILE} are allowed"
    if (mean := sizes["package"].mean_complexity) > MEAN_COMPLEXITY:
        yield f"a function has a complexity of {mean:.2f}, at most {MEAN_COMPLEXITY} is allowed"
    if assets() > ASSET_LINES:
        yield f"the assets have {assets():,} lines, at most {ASSET_LINES:,} are allowed"


if __name__ == "__main__":
    main()
