"""Finds the private names of other packages that our code uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.integration.uses import PACKAGE, Module, modules

OURS = PACKAGE.name
_ASK = ("delattr", "getattr", "hasattr", "setattr")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def privates() -> set[tuple[str, str]]:
    """Return all such names, each with the file that uses it, relative to the package."""
    found = {
        (name, str(path.relative_to(PACKAGE)))
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "compat"
        for name in private_in(ast.parse(path.read_text(encoding="utf-8")), own())
    }
    overridden = {
        (name, f"{module.name.partition('.')[2].replace('.', '/')}.py")
        for module in modules()
        for name in module.of_self()
        if is_private(name)
    }
    return found | overridden


@cache
def own() -> frozenset[str]:
    """Return all names that our code defines, in any module or class."""
    return frozenset(name for path in PACKAGE.rglob("*.py") for name in Module(path).own())


def private_in(tree: ast.AST, own: frozenset[str]) -> Iterator[str]:
    """Yield the private names of other packages that one of our modules imports, reads or sets.

    An attribute of `self` or `cls` counts as ours if our code defines it. Every other private
    attribute counts as another package's.

    Args:
        own: The names that our code defines.
    """
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] != OURS:
                names = [*module.split("."), *(alias.name for alias in node.names)]
                yield from filter(is_private, names)
            case ast.Import():
                for alias in node.names:
                    yield from filter(is_private, alias.name.split("."))
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if name in own:
                continue
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(func=ast.Name(id=ask), args=[_, ast.Constant(value=str(name)), *_]):
                if ask in _ASK and is_private(name):
                    yield name
