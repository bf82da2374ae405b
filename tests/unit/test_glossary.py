"""The glossary and the names: one word for one concept, in public names and in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import celery_sqs_heartbeat
from celery_sqs_heartbeat.journal.fields import EVENTS, FIELDS
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus
from celery_sqs_heartbeat.observe.catalogue import METRICS
from celery_sqs_heartbeat.pipeline.schema import TABLES
from celery_sqs_heartbeat.settings import NAMES
from tests.support.markdown import ROOT

PACKAGE = Path(celery_sqs_heartbeat.__file__).parent
PAGE = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
WORDS, _, AVOIDED = PAGE.partition("## Words we do not use")
ROWS = re.compile(r"^\| ([^|]+?) \|", re.MULTILINE)
TERMS = [term for term in ROWS.findall(WORDS) if term not in ("word", "---")]
NOT_USED = [word.strip() for row in ROWS.findall(AVOIDED) for word in row.split(",")]
NOT_USED = [word for word in NOT_USED if word not in ("not", "---")]

#: Words of AWS's and Celery's own names.
THEIRS = frozenset(
    re.findall(
        r"\w+",
        "ack acks batch boot concurrency count delay eta fifo flight host id message node pid pool "
        "queue rejects retry session task token visibility wait worker",
    )
)
#: Words that mean in these names what they mean everywhere.
PLAIN = frozenset(
    re.findall(
        r"\w+",
        "1000 abandoned action age alive and answered as at attempts bin both call cap caps cause "
        "censored confidence cost denials denied dropped duration enabled end ended entries err "
        "error event evidence excess failed failure file finished first flush granted group in "
        "interval is kind last late latency least letter lines long loop losses max mean measure "
        "min minute near next objective oldest on otel outcome overlap peak pending per "
        "permission promised quota rank reason recommendations recoveries recovery replaced risk "
        "run saved second seen sent settings share skew slack slots spans started status stopped "
        "stops succeeded sum threshold timeout tries unanswered us usd v version waiting",
    )
)
#: The journal's short names: docs/journal.md says what each stands for.
SHORT = frozenset(re.findall(r"\w+", "act dlv ev grp lat mono msg rc s seq sn ts vt wid"))


@cache
def stems() -> frozenset[str]:
    """Return how the words of the glossary's terms begin: `extend` stands for `extension`, too."""
    words = {word for term in TERMS for word in re.findall(r"[a-z]+", term)}
    words |= {member.value for member in (*Goal, *LeaseStatus)} | {"held"}
    return frozenset(word[:5] if len(word) > 5 else word[:4] for word in words)


def is_known(word: str) -> bool:
    if word in THEIRS | PLAIN | SHORT or word.removesuffix("s") in THEIRS | PLAIN:
        return True
    return any(word.startswith(stem) for stem in stems())


def public_names() -> Iterator[tuple[str, str]]:
    for name in NAMES:
        yield "setting", name
    for kind in EventKind:
        yield "log event", kind.value
    for metric in METRICS:
        yield "metric", metric.name
        yield from (("label", label) for label in metric.labels)
    for event in EVENTS:
        yield "journal event", event
    for field in FIELDS:
        yield "journal field", field.name
    for table in TABLES.values():
        yield "table", table.name
        yield from (("column", column.name) for column in table.columns)


@cache
def names_in_code() -> frozenset[str]:
    """Return the names of the package's modules, classes, functions and attributes."""
    names = set()
    for path in PACKAGE.rglob("*.py"):
        names.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
    return frozenset(names)


def words_of(name: str) -> list[str]:
    """Return the words of a name: `LeaseStatus`, `lease_status` and `lease-status` have two."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("-", "_").strip("_").split("_")


def test_each_word_of_a_public_name_is_in_the_glossary_or_a_plain_one() -> None:
    unknown = {
        f"{kind} {name}: {word}"
        for kind, name in public_names()
        for word in words_of(name)
        if not is_known(word)
    }
    assert unknown == set(), "describe the word in docs/glossary.md, or use a plain one"


@pytest.mark.parametrize("word", NOT_USED)
def test_a_word_that_is_not_used_is_in_no_name(word: str) -> None:
    avoided = word.split()
    names = {*names_in_code(), *(name for _, name in public_names())}
    used = sorted(
        name
        for name in names
        for words in [words_of(name)]
        if any(words[at : at + len(avoided)] == avoided for at in range(len(words)))
    )
    # Python's own function, and a public name that warns for one version.
    allowed = {("round", "round"), ("standing", "standing")}
    assert [name for name in used if (word, name) not in allowed] == []


def test_the_glossary_lists_each_goal_and_status() -> None:
    for member in (*Goal, *LeaseStatus):
        assert f"*{member.value}*" in WORDS


def test_each_term_is_described_once() -> None:
    assert len(TERMS) == len(set(TERMS))
    assert len(TERMS) > 40
