"""Writes files whole, or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

_MODES = {"effective_ids": os.access in os.supports_effective_ids}


def is_permitted(path: Path, mode: int) -> bool:
    """Return whether this process may use a path as a mode says: `os.W_OK`, say."""
    return os.access(path, mode, **_MODES)


def write_whole(out: Path, content: bytes) -> None:
    """Write a file. One that was there stays as it is until the new one is whole.

    Raises:
        OSError: It can't be written.
    """
    # A device has no file beside it, nor has one in a folder that is not ours.
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
            # It is gone if all went well.
            with suppress(OSError):
                draft.unlink()
