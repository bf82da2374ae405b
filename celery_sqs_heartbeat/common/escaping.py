"""Shows text of others, as names of tasks, so that it can neither end a line nor steer a terminal.

Who may send to a queue chooses the names and ids of tasks. A newline in one would forge a log line,
an escape sequence would be obeyed by the terminal that shows the log.
"""

from __future__ import annotations

import logging
import re

#: Control characters (C0, DEL, C1), what ends a line in Unicode, what turns the direction of text
#: or is not seen (Unicode TR 36, "Bidirectional Text Spoofing"), and what UTF-8 can't encode.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)


def escaped(text: str) -> str:
    """Return the text with a backslash escape for each character that does more than be seen."""
    return _UNSAFE.sub(_escape, text)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module that logs text of others: what it is given is escaped."""
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
    # What is safe stays what it is, for handlers that look at it.
    return escaped(text) if _UNSAFE.search(text) else argument
