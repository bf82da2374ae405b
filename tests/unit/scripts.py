"""Tables of scripts: each row names what it shows, and is played step by step.

The steps of a script are divided by ";". What the words of a step mean is up to its player.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

_VALUES = {"yes": True, "no": False, "none": None, "never": math.inf}


def table(text: str, begin: str = "") -> pytest.MarkDecorator:
    """Run a test with each script of a text.

    Args:
        text: A line that is not indented names the script below it: it says what that shows. It may
            be several names, divided by " / ". Each then takes the place of "{}" in the script.
        begin: The steps with which each script begins.
    """
    rows = re.findall(r"^(\S.*):\n((?:\s+.*\n)+)", text, re.MULTILINE)
    assert sum(len(script.splitlines()) + 1 for _, script in rows) == len(text.splitlines()) - 1
    scripts = {
        each: f"{begin} {' '.join(script.split())}".replace("{}", each)
        for names, script in rows
        for each in names.split(" / ")
    }
    return pytest.mark.parametrize("script", scripts.values(), ids=scripts.keys())


def names_of(word: str) -> list[str]:
    first, _, last = word.partition("..")
    if not last:
        return [word]
    stem = first.rstrip("0123456789")
    return [f"{stem}{n}" for n in range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)]


def pairs(words: list[str]) -> dict[str, Any]:
    return {name: value_of(value) for name, _, value in (word.partition("=") for word in words)}


def value_of(text: str) -> Any:
    if text in _VALUES:
        return _VALUES[text]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text_of(text)


def text_of(word: str) -> str:
    return word.replace("_", " ")
