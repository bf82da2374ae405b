"""The characters that SQS accepts in messages."""

from __future__ import annotations

import re

#: SQS API reference, SendMessage, MessageBody.
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: SQS's error for the others.
REFUSAL = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


def are_allowed(text: str) -> bool:
    """Return whether SQS accepts all characters of a body, a string value or its type."""
    return not _REFUSED.search(text)


def size_of(data: str | bytes) -> int:
    """Return the size of a part of a message in bytes, whether SQS accepts it or not."""
    return len(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
