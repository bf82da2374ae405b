"""A table lists every private name of other packages that we use, and its possible replacement."""

from __future__ import annotations

import ast
import runpy

import pytest

from celery_sqs_heartbeat.worker.compat.check import missing
from celery_sqs_heartbeat.worker.compat.needs import Need
from celery_sqs_heartbeat.worker.compat.private_names import NAMES, PRIVATE
from celery_sqs_heartbeat.worker.compat.versions import (
    VERIFIED,
    distribution_of,
    is_verified,
    version_of,
)
from tests.integration.privates import is_private, private_in, privates
from tests.support.markdown import ROOT

#: Names that the scan finds, and that are not private names of another package.
NOT_PRIVATE = {
    "_asdict": "documented, of named tuples",
    "_exit": "documented, of `os`",
    "_replace": "documented, of named tuples",
    "_thread": "documented, as the base of `threading`",
}


def is_here(distribution: str) -> bool:
    return distribution == "python" or version_of(distribution) != "unknown"


def parts(need: Need) -> set[str]:
    """Return the private parts of a name's path."""
    path = need.owner.replace(":", ".").split(".")
    return {part for part in (*path, need.name) if is_private(part)}


def test_every_private_name_that_we_use_is_in_the_table() -> None:
    listed = {part for need in PRIVATE for part in parts(need)} | set(NOT_PRIVATE)
    assert sorted(use for use in privates() if use[0] not in listed) == []


def test_every_private_name_in_the_table_is_used() -> None:
    used = {name for name, _ in privates()}
    assert sorted({part for need in PRIVATE for part in parts(need)} - used) == []
    assert set(NOT_PRIVATE) <= used


def test_private_names_have_a_replacement_and_others_do_not() -> None:
    assert [str(each) for each in NAMES if parts(each) and each not in PRIVATE] == []
    assert [str(need) for need in PRIVATE if not need.instead] == []
    assert [str(each) for each in NAMES if each.instead and each not in PRIVATE] == []
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.oldest
def test_names_that_not_every_worker_needs_exist_too() -> None:
    apart = [need for need in PRIVATE if need.only and is_here(distribution_of(need.package))]
    assert missing(apart) == ()


@pytest.mark.oldest
@pytest.mark.parametrize("distribution", VERIFIED)
def test_the_installed_versions_are_verified(distribution: str) -> None:
    if is_here(distribution):
        assert is_verified(distribution), f"verify its names, and extend VERIFIED: {distribution}"
    assert distribution in {distribution_of(need.package) for need in PRIVATE}


def test_the_document_matches_the_table() -> None:
    text = (ROOT / "docs" / "private-names.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(ROOT / "docs" / "make_private_names.py"))["with_tables"](text)
    assert made == text, "run python docs/make_private_names.py"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("self._own = self._own", []),
        ("self._theirs()", ["_theirs"]),
        ("pool._own", ["_own"]),
        ("pool.inner._theirs = 1", ["_theirs"]),
        ("super()._own()", ["_own"]),
        ("pool.__class__", []),
        ("getattr(pool, '_theirs', None)", ["_theirs"]),
        ("hasattr(pool, 'public')", []),
        ("import _theirs.more", ["_theirs"]),
        ("from celery import _state", ["_state"]),
        ("from celery._state import current", ["_state"]),
        ("from celery_sqs_heartbeat.cli import _own", []),
    ],
)
def test_private_names_of_others_are_distinguished_from_our_own(
    code: str, found: list[str]
) -> None:
    assert list(private_in(ast.parse(code), frozenset({"_own"}))) == found
