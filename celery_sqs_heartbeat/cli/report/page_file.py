"""Writes the page to the file that --out names."""

from __future__ import annotations

import os
from pathlib import Path

from celery_sqs_heartbeat.cli.whole_files import is_permitted, write_whole
from celery_sqs_heartbeat.common.exits import Refusal


def check_page(out: Path) -> None:
    """Check that a page can be written to a path, before the work for it begins.

    Raises:
        Refusal: The path is a folder, or its folder is missing or not writable.
    """
    try:
        if out.is_dir():
            raise _refusal(out, "it is a folder")
        if out.exists():
            if not is_permitted(out, os.W_OK):
                raise _refusal(out, "it is not writable by this user")
        elif not out.parent.is_dir():
            raise _refusal(out, f"there is no folder {str(out.parent)!r}")
        elif not is_permitted(out.parent, os.W_OK | os.X_OK):
            raise _refusal(out, f"{str(out.parent)!r} is not writable by this user")
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def write_page(out: Path, page: str) -> None:
    """Write a page completely, or not at all.

    Raises:
        Refusal: The page can't be written, for example because the disk is full.
    """
    try:
        write_whole(out, page.encode())
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def _refusal(out: Path, fault: str) -> Refusal:
    return Refusal(f"--out {str(out)!r} can't be written: {fault}; name a file that can be written")
