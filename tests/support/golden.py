"""Outputs of commands that are kept as files, and compared word for word."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "unit" / "cli" / "golden"


def golden(name: str, text: str) -> None:
    """Compare a text with the file of that name. With WRITE_GOLDEN=1, write the file first."""
    path = FOLDER / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
