"""Reads the code blocks of a document, so that tests can run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    """Return the fenced code blocks of a language, in their order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(document: str) -> list[str]:
    """Return the commands of the console blocks."""
    lines = "".join(blocks(document, "console")).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def typed(block: str) -> str:
    """Return the commands that a reader types from a console block: no prompts, no output."""
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ ") or (lines and lines[-1].endswith("\\")):
            lines.append(line.removeprefix("$ "))
    return "\n".join(lines)


def typed_lines(block: str) -> list[str]:
    """Return what a reader types of a console block, each command on one line."""
    return typed(block).replace("\\\n", "").splitlines()


def languages(document: str) -> set[str]:
    """Return the languages of all fenced code blocks."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return set(re.findall(r"^```(\w+)$", text, re.MULTILINE))
