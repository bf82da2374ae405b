"""Escapes text from strangers, such as task names, before it is logged or shown.

Anyone who may send to a queue chooses the names and ids of tasks. A newline in one could forge a
log line. A terminal that shows the log would execute an escape sequence.
"""

from __future__ import annotations

import logging
import re

#: Control characters (C0, DEL, C1), Unicode's line separators, characters that change the direction
#: of text or are invisible (Unicode TR 36, "Bidirectional Text Spoofing"), and surrogates, which
#: UTF-8 can't encode.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)


def escaped(text: str) -> str:
    """Return the text with a backslash escape for each unsafe character."""
    return _UNSAFE.sub(_escape, text)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module that logs text from strangers. It escapes its arguments."""
    logger = logging.getLogger(name)
    logger.addFilter(_escape_arguments)
    return logger


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _escape_arguments(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_escaped_argument, record.args))
    return True


def _escaped_argument(argument: object) -> object:
    if argument is None or isinstance(argument, (int, float)):
        return argument
    text = str(argument)
    # A safe argument keeps its type, because handlers may read it.
    return escaped(text) if _UNSAFE.search(text) else argument


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: "1 message", "2 messages".

    Args:
        nouns: The plural, if it is not the noun with an s.
    """
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def seconds(value: float) -> str:
    """Return seconds with three significant digits, or rounded to whole seconds from 100 on."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
