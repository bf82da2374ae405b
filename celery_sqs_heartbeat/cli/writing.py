"""Writes a command's files: whole, or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from celery_sqs_heartbeat.common.exits import Refusal

_MODES = {"effective_ids": os.access in os.supports_effective_ids}


def check_page(out: Path) -> None:
    """Let a path pass that a page can be written to, before the work for it begins.

    Raises:
        Refusal: The folder is missing or not writable, or the path is a folder's.
    """
    try:
        if out.is_dir():
            raise _refusal(out, "it is a folder")
        if out.exists():
            if not os.access(out, os.W_OK, **_MODES):
                raise _refusal(out, "it is not writable for this user")
        elif not out.parent.is_dir():
            raise _refusal(out, f"there is no folder {str(out.parent)!r}")
        elif not os.access(out.parent, os.W_OK | os.X_OK, **_MODES):
            raise _refusal(out, f"{str(out.parent)!r} is not writable for this user")
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def write_page(out: Path, page: str) -> None:
    """Write a page, whole or not at all.

    Raises:
        Refusal: It can't be written, as on a full disk.
    """
    try:
        write_whole(out, page.encode())
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def write_whole(out: Path, content: bytes) -> None:
    """Write a file. One that was there stays as it is until the new one is whole.

    Raises:
        OSError: It can't be written.
    """
    # A device has no file beside it, nor has one in a folder that is not ours.
    is_beside = not out.exists() or (
        out.is_file() and not out.is_symlink() and os.access(out.parent, os.W_OK, **_MODES)
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


def _refusal(out: Path, fault: str) -> Refusal:
    return Refusal(f"--out {str(out)!r} can't be written: {fault}; give a file that can be")
