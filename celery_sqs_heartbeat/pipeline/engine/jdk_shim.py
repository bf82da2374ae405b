"""Wraps a Java for Spark, to remove a module that Spark requests and does not need.

Spark 4 always requests the incubating module `jdk.incubator.vector`, and no setting prevents that.
The runtime that pip installs was built without it and does not start then. Every other Java prints
a warning on standard error. Only Spark's machine learning would be faster with it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from pathlib import Path

_UNWANTED = "--add-modules=jdk.incubator.vector"

#: It also moves the archive that Java writes at its exit into place (`class_archive`). That takes
#: seconds, after the command has ended. A reader of the command's output must not wait for it.
_SCRIPT = """#!/bin/sh
draft=
for argument do
  shift
  case $argument in
    {unwanted}) continue ;;
    -XX:ArchiveClassesAtExit=*) draft=${{argument#*=}} ;;
  esac
  set -- "$@" "$argument"
done
if [ -n "$draft" ]; then
  exec >/dev/null 2>&1
  {java} "$@"
  status=$?
  [ $status -eq 0 ] && mv -f "$draft" "${{draft%.*}}" || rm -f "$draft"
  exit $status
fi
exec {java} "$@"
"""
_MARK = _SCRIPT.partition("{unwanted}")[0].encode()


def is_shim(java: Path) -> bool:
    """Return whether a Java is such a wrapper, because another command of ours started this one."""
    try:
        with java.open("rb") as file:
            return file.read(len(_MARK)) == _MARK
    except OSError:
        return False


def wrapped_java(home: Path) -> Path | None:
    """Return the Java behind a wrapper that is in the user's cache folder; None for others."""
    java = home / "bin" / "java"
    if home.parent != Path(_cache()) or not is_shim(java):
        return None
    return Path(shlex.split(java.read_text().splitlines()[-1])[1])


def shimmed_home(java: Path) -> Path:
    """Return a Java home whose `java` runs the given one without that module.

    It is in the user's cache folder. If that can't be written, it is in a new temporary folder.

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
    """Write the script atomically, because another process may run it now."""
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".java-{os.getpid()}")
    draft.write_text(script)
    draft.chmod(0o755)
    draft.replace(path)
