"""The page and the picture of the architecture name the existing parts, in the same order."""

from __future__ import annotations

import re
import runpy
from collections import Counter

from tests.support.markdown import ROOT

PACKAGE = ROOT / "celery_sqs_heartbeat"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: The modules that a message passes through, or that describe it.
MESSAGE_PATH = (
    *("transport", "receiving", "worker", "consumer", "link", "keeper", "leases", "sqs"),
    *("current", "journal", "observe", "settings", "common"),
)
LISTED = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)


def test_the_page_lists_each_folder_of_the_package_once() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert len(LISTED) == len(set(LISTED))
    assert set(LISTED) == folders


def test_the_page_and_the_picture_have_the_same_order_of_imports() -> None:
    (line,) = re.findall(r"^common < .*$", TEXT, re.MULTILINE)
    order = tuple(tuple(step.split(", ")) for step in line.split(" < "))
    assert order == runpy.run_path(str(ROOT / "docs" / "draw_architecture.py"))["ORDER"]
    assert {name for step in order for name in step} < set(LISTED)


def test_what_the_pages_of_the_parts_name_is_there() -> None:
    for page in sorted((ROOT / "docs" / "internals").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
        missing = [
            path for path in named if not any((base / path).exists() for base in (ROOT, PACKAGE))
        ]
        assert missing == [], page.name


def test_no_two_modules_on_a_messages_path_have_the_same_name() -> None:
    names = Counter(
        path.name
        for folder in MESSAGE_PATH
        for path in (PACKAGE / folder).rglob("*.py")
        if not path.name.startswith("__")
    )
    assert {name for name, count in names.items() if count > 1} == set()
    assert len(names) > len(MESSAGE_PATH)
