"""Finds the names that we need of other packages and that they do not have."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from celery_sqs_heartbeat.worker.compat.needs import Need
from celery_sqs_heartbeat.worker.compat.private_names import NAMES
from celery_sqs_heartbeat.worker.compat.versions import at_least

#: What every worker needs.
NEEDS = tuple(each for each in NAMES if each.only is None)

_Parameter = inspect.Parameter
_BY_POSITION = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)


def missing(needs: Iterable[Need] = NEEDS) -> tuple[str, ...]:
    """Return a fault for each name that is missing or has changed."""
    faults: dict[str, str] = {}
    for need in needs:
        if (fault := _fault(need)) is not None:
            # A missing class is one fault, however many of its names we need.
            faults.setdefault(fault.split(": ")[0], fault)
    return tuple(faults.values())


def _fault(need: Need) -> str | None:
    if need.since is not None and not at_least(need.package, need.since):
        return None
    try:
        owner = _find(need.owner)
    except (ImportError, AttributeError):
        return f"{need.owner} is missing: {need.why}"
    if not _has(owner, need.name):
        return f"{need} is missing: {need.why}"
    theirs = getattr(owner, need.name, None)
    if not callable(theirs) or isinstance(theirs, type):
        return None
    is_method = isinstance(owner, type) and isinstance(
        inspect.getattr_static(owner, need.name), FunctionType
    )
    if need.call is not None and not _accepts(theirs, need.call, is_method=is_method):
        return f"{need} no longer accepts ({need.call}): {need.why}"
    if need.by is not None and not _is_replaced(need, theirs):
        return f"{need} now takes ({', '.join(inspect.signature(theirs).parameters)}): {need.why}"
    return None


def _find(path: str) -> Any:
    module, _, name = path.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


def _has(owner: Any, name: str) -> bool:
    """Return whether a module, a class or its instances have an attribute."""
    return hasattr(owner, name) or (isinstance(owner, type) and name in _stored(owner))


@cache
def _stored(owner: type) -> frozenset[str]:
    """Return the attributes that a class's methods set, usually on instances."""
    return frozenset(
        name
        for base in owner.__mro__
        for each in vars(base).values()
        if isinstance(each, FunctionType)
        for name in _stores(each.__code__)
    )


def _stores(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _stores(constant)


def _accepts(function: Callable[..., Any], call: str, *, is_method: bool) -> bool:
    """Return whether a function accepts the arguments of a call, such as `queue, callback=`."""
    arguments = [each.strip() for each in call.split(",") if each.strip()]
    names = {each[:-1]: None for each in arguments if each.endswith("=")}
    positional = [None] * (is_method + len(arguments) - len(names))
    return _binds(inspect.signature(function), positional, names)


def _is_replaced(need: Need, theirs: Any) -> bool:
    try:
        ours = getattr(_find(str(need.by)), need.name)
    except (ImportError, AttributeError):
        # Another name is missing, and is reported as its own fault.
        return True
    return _replaces(ours, theirs)


def _replaces(ours: Any, theirs: Any) -> bool:
    """Return whether our method accepts every call that theirs accepts."""
    if not callable(ours):
        return False
    own = inspect.signature(ours)
    parameters = inspect.signature(theirs).parameters.values()
    positional = [each for each in parameters if each.kind in _BY_POSITION]
    needed = [None for each in positional if each.default is _Parameter.empty]
    optional = {
        each.name: None
        for each in parameters
        if each.default is not _Parameter.empty and each.kind is not _Parameter.POSITIONAL_ONLY
    }
    return _binds(own, [None] * len(positional), {}) and _binds(own, needed, optional)


def _binds(signature: inspect.Signature, positional: list[None], names: dict[str, None]) -> bool:
    try:
        signature.bind(*positional, **names)
    except TypeError:
        return False
    return True
