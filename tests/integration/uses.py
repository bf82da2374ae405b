"""Finds the names of Celery, kombu, billiard and vine that our code imports, overrides or reads."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from celery.worker.request import Request

import celery_sqs_heartbeat
from celery_sqs_heartbeat.worker.requests import LeasedRequest

PACKAGE = Path(celery_sqs_heartbeat.__file__).parent
FOREIGN = ("celery", "kombu", "billiard", "vine")
#: The names that our code gives to objects of Celery and kombu. Each attribute of these counts.
OBJECTS = {"app", "channel", "executor", "hub", "http_client", "job", "parent", "pool", "worker"}


def is_foreign(module: str | None) -> bool:
    return module is not None and module.split(".")[0] in FOREIGN


class Module:
    """One of our modules that uses Celery or kombu."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(("celery_sqs_heartbeat", *path.relative_to(PACKAGE).parts))
        self.name = self.name.removesuffix(".py").removesuffix(".__init__")
        self.tree = ast.parse(path.read_text())
        self.imports = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and is_foreign(node.module)
        ]

    def imported(self) -> Iterator[str]:
        """The names that it imports."""
        for node in self.imports:
            yield from (alias.name for alias in node.names)

    def of_modules(self) -> Iterator[str]:
        """The attributes that it reads from modules and classes that it imports."""
        names = {alias.asname or alias.name for node in self.imports for alias in node.names}
        for node in self._attributes():
            base = ast.unparse(node.value)
            if base.split(".")[0] in (*names, *FOREIGN):
                yield node.attr

    def of_objects(self) -> Iterator[str]:
        """The attributes that it reads from objects in `OBJECTS`."""
        for node in self._attributes():
            if isinstance(node.value, ast.Name) and node.value.id in OBJECTS:
                yield node.attr
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                match node.args:
                    case [_, ast.Constant(value=str(name)), *_]:
                        yield name

    def of_self(self) -> Iterator[str]:
        """The attributes that our subclasses of foreign classes read from `self`, or override."""
        for kind in self._subclasses():
            ours = [base for base in runtime(self.name, kind).__mro__ if is_ours(base)]
            theirs = [*foreign_bases(runtime(self.name, kind))]
            own = {name for base in ours for name in vars(base)} | set(stored(ours))
            for node in ast.walk(kind):
                if isinstance(node, ast.Attribute):
                    base = ast.unparse(node.value)
                    if base == "super()" or (base == "self" and node.attr not in own):
                        yield node.attr
            for name in vars(runtime(self.name, kind)):
                if not name.startswith("__") and any(hasattr(base, name) for base in theirs):
                    yield name

    def own(self) -> Iterator[str]:
        """The names that it defines."""
        for node in ast.walk(self.tree):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    yield name
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    yield name
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Store()):
                    yield name

    def _subclasses(self) -> Iterator[ast.ClassDef]:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and any(foreign_bases(runtime(self.name, node))):
                yield node

    def _attributes(self) -> Iterator[ast.Attribute]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Attribute))


def runtime(module: str, node: ast.ClassDef) -> type:
    kind: type = getattr(importlib.import_module(module), node.name)
    return kind


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("celery_sqs_heartbeat")


def foreign_bases(kind: Any) -> Iterator[type]:
    """Return the foreign classes from which one of our classes derives."""
    if issubclass(kind, LeasedRequest):
        # It is a mixin for Celery's request.
        yield Request
    for base in kind.__mro__:
        if is_foreign(base.__module__) and not issubclass(base, Exception):
            yield base


def stored(kinds: list[type]) -> Iterator[str]:
    """The attributes that the methods of these classes set."""
    for kind in kinds:
        source = Path(importlib.import_module(kind.__module__).__file__ or "")
        yield from Module(source).own()


def modules() -> list[Module]:
    """Return our modules that a worker runs."""
    folders = ("transport", "worker", "current", "sqs")
    paths = [
        path
        for folder in folders
        for path in (PACKAGE / folder).rglob("*.py")
        if path.parent.name != "compat"
    ]
    return [Module(path) for path in (*paths, PACKAGE / "signals.py")]
