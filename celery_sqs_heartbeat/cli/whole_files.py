"""Writes files completely, or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

_MODES = {"effective_ids": os.access in os.supports_effective_ids}


def is_permitted(path: Path, mode: int) -> bool:
    """Return whether this process may use a path in a mode, such as `os.W_OK`."""
    return os.access(path, mode, **_MODES)


def write_whole(out: Path, content: bytes) -> None:
    """Write a file. An existing file stays unchanged until the new one is complete.

    Raises:
        OSError: The file can't be written.
    """
    # A draft beside the file is impossible for a device, and in a folder that is not writable.
    is_beside = not out.exists() or (
        out.is_file() and not out.is_symlink() and is_permitted(out.parent, os.W_OK)
    )
    draft = out.with_name(f".sqs-heartbeat-{os.getpid()}") if is_beside else out
    try:
        draft.write_bytes(content)
        if is_beside:
            with suppress(FileNotFoundError):
                shutil.copymode(out, draft)
            draft.replace(out)
    finally:
        if is_beside:
            # After a success the draft no longer exists.
            with suppress(OSError):
                draft.unlink()
