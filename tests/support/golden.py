"""Outputs of commands that are kept as files, and compared word for word."""

from __future__ import annotations

import os
import re
from pathlib import Path

#: Where the text of another package or of Python begins, which may differ in other versions.
_FOREIGN = re.compile(r"(\w+Error: |No such transport: |does not accept it ).*")
FOLDER = Path(__file__).parent.parent / "unit" / "cli" / "golden"


def golden(name: str, text: str) -> None:
    """Compare a text with the file of that name. With WRITE_GOLDEN=1, write the file first."""
    path = FOLDER / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def without_foreign(text: str) -> str:
    """Cut each line where the text of an error of another package begins."""
    return _FOREIGN.sub(r"\1...", text)
