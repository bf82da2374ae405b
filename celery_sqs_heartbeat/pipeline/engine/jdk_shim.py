"""Makes a Java fit for Spark: its own, but for a module that Spark asks for and does not need.

Spark 4 asks every Java for the incubating `jdk.incubator.vector`, and no setting keeps it from
that. The runtime that pip installs has been built without it, and does not start then; any other
warns of it on standard error. Only Spark's machine learning would be quicker by it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from pathlib import Path

_UNWANTED = "--add-modules=jdk.incubator.vector"

_SCRIPT = """#!/bin/sh
for argument do
  shift
  case $argument in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_MARK = _SCRIPT.partition("{unwanted}")[0].encode()


def is_shim(java: Path) -> bool:
    """Return whether that Java is one of these, as for a command that another one started."""
    try:
        with java.open("rb") as file:
            return file.read(len(_MARK)) == _MARK
    except OSError:
        return False


def shimmed_home(java: Path) -> Path:
    """Return a Java home whose `java` is the given one, but is never asked for that module.

    It is kept in the user's folder for caches, or where that can't be written, in a new
    temporary one.

    Raises:
        OSError: Neither can be written.
    """
    script = _SCRIPT.format(unwanted=_UNWANTED, java=shlex.quote(str(java)))
    for folder in (_cache, tempfile.mkdtemp):
        home = Path(folder(), hashlib.sha256(os.fsencode(java)).hexdigest()[:16])
        try:
            _write(home / "bin" / "java", script)
        except OSError:
            continue
        return home
    raise OSError(f"no folder for a script of {len(script)} bytes")


def _cache() -> str:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(caches / "celery-sqs-heartbeat" / "java")


def _write(path: Path, script: str) -> None:
    """Put the script there whole: another process may run it just now."""
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".java-{os.getpid()}")
    draft.write_text(script)
    draft.chmod(0o755)
    draft.replace(path)
