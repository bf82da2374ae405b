"""A page and the worker's check list the same names: all private ones of others that we use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pkgutil import resolve_name

import pytest

from celery_sqs_heartbeat.transport import FedChannel, Transport
from celery_sqs_heartbeat.transport.settling import QoS
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from celery_sqs_heartbeat.worker.versions import NAMES
from tests.support.markdown import ROOT

PACKAGE = ROOT / "celery_sqs_heartbeat"
#: Names that only an optional part needs, so that a worker does not check them.
OPTIONAL = {
    ("celery_batches:Batches", "_tref"),
    ("pyspark.errors.exceptions.captured:CapturedException", "_origin"),
}
#: Names that the scan finds, and that are not private: Python documents them.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace", "_thread"}


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield each name of the page: its module or class, itself, and the file that uses it."""
    text = (ROOT / "docs" / "private-names.md").read_text(encoding="utf-8")
    owner = ""
    for of, names, file in re.findall(r"^\| (`[^|]+)?\| (`[^|]+) \| `([^|]+)` \|", text, re.M):
        owner = of.strip(" `") or owner
        for name in re.findall(r"`(\w+)`", names):
            yield owner, name, file


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that one of our modules defines, in its classes, too."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def private_in(tree: ast.AST, own: set[str]) -> Iterator[str]:
    """Yield the private names of other packages that one of our modules imports, reads or sets.

    An attribute of `self` or `cls` counts as ours if our code defines it. Every other private
    attribute counts as another package's.

    Args:
        own: The names that our code defines.
    """
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] != PACKAGE.name:
                names = [*module.split("."), *(alias.name for alias in node.names)]
                yield from filter(is_private, names)
            case ast.Import():
                for alias in node.names:
                    yield from filter(is_private, alias.name.split("."))
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if name in own:
                continue
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(
                func=ast.Name(id="delattr" | "getattr" | "hasattr" | "setattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if is_private(name):
                yield name


def test_the_page_lists_what_a_worker_checks() -> None:
    checked = {(owner, name) for owner, names in NAMES.items() for name in names.split()}
    assert {(owner, name) for owner, name, _ in rows()} == checked | OPTIONAL


def test_each_name_is_used_where_the_page_says() -> None:
    wrong = [
        (name, file)
        for _, name, file in rows()
        if not re.search(rf"\b{name}\b", (PACKAGE / file).read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_every_private_name_that_we_use_is_on_the_page_and_no_other() -> None:
    own = {name for tree in trees() for name in defined(tree)}
    used = {name for tree in trees() for name in private_in(tree, own)}
    listed = {part for owner, name, _ in rows() for part in (*re.split("[.:]", owner), name)}
    assert sorted(used - listed - DOCUMENTED) == []
    assert sorted({*filter(is_private, listed)} - DOCUMENTED - used) == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (FedChannel, "kombu.transport.SQS:Channel"),
        (LeasedRequest, "celery.worker.request:Request"),
        (QoS, "kombu.transport.SQS:QoS"),
        (Transport, "kombu.transport.SQS:Transport"),
    ],
)
def test_overridden_names_are_checked(ours: type, theirs: str) -> None:
    checked = set(NAMES[theirs].split())
    bases = [base for base in ours.__mro__ if base.__module__.startswith(PACKAGE.name)]
    names = {name for base in bases for name in vars(base)}
    overridden = {name for name in names if hasattr(resolve_name(theirs), name)}
    assert set(filter(is_private, overridden)) <= checked
    assert {name for name in checked if not is_private(name)} <= overridden
