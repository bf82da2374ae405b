"""Writes the page to the file that --out names."""

from __future__ import annotations

import os
from pathlib import Path

from celery_sqs_heartbeat.cli.whole_files import is_permitted, write_whole
from celery_sqs_heartbeat.common.exits import Refusal


def check_page(out: Path) -> None:
    """Let a path pass that a page can be written to, before the work for it begins.

    Raises:
        Refusal: The folder is missing or not writable, or the path is a folder's.
    """
    try:
        if out.is_dir():
            raise _refusal(out, "it is a folder")
        if out.exists():
            if not is_permitted(out, os.W_OK):
                raise _refusal(out, "it is not writable for this user")
        elif not out.parent.is_dir():
            raise _refusal(out, f"there is no folder {str(out.parent)!r}")
        elif not is_permitted(out.parent, os.W_OK | os.X_OK):
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


def _refusal(out: Path, fault: str) -> Refusal:
    return Refusal(f"--out {str(out)!r} can't be written: {fault}; give a file that can be")
