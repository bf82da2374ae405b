"""Keeps Spark's classes in a file from which Java starts sooner: a class-data archive.

Java loads and checks 20,000 classes for a report, which takes a third of a small report's time. The
first Spark on a machine writes an archive of them when it ends, and later ones map it into memory.
Java itself checks that an archive fits, and works without it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyspark

from celery_sqs_heartbeat.pipeline.engine.jdk_shim import wrapped_java

#: The environment variable that turns archives off if it is 0.
SWITCH = "SQS_HEARTBEAT_CLASS_ARCHIVE"
#: An archive takes up to 180 MB. With less room than this, none is written.
_LEAST_FREE_BYTES = 2_000_000_000
#: An archive that was not used for this long is removed, in seconds.
_UNUSED = 60 * 86_400.0
#: Java must not print that an archive does not fit, or which classes it leaves out.
_QUIET = "-Xlog:disable"


def archive_options(home: Path) -> str:
    """Return the options for Java that use the archive, or write it if there is none.

    Args:
        home: Java's home. If that is not a wrapped Java in the user's cache folder, there is no
            archive, because the wrapper moves a new one into place.
    """
    if os.environ.get(SWITCH) == "0":
        return ""
    try:
        java = wrapped_java(home)
        if java is None:
            return ""
        archive = home / f"classes-{_key(java)}.jsa"
        if archive.is_file():
            os.utime(archive)
            return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"
        _remove_unused(home)
        if not os.access(home, os.W_OK) or shutil.disk_usage(home).free < _LEAST_FREE_BYTES:
            return ""
    except OSError:
        return ""
    # A space would end the option.
    if any(each.isspace() for each in str(archive)):
        return ""
    return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()} {_QUIET}"


def _key(java: Path) -> str:
    """Return what an archive depends on: the Java, and Spark's jars."""
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
    facts = [str(java), pyspark.__version__, str(jars)]
    for path in (java, jars):
        with suppress(OSError):
            facts.append(str(path.stat().st_mtime_ns))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _remove_unused(home: Path) -> None:
    """Remove archives of other versions, and drafts of commands that were killed."""
    for path in home.glob("classes-*.jsa*"):
        if path.stat().st_mtime < time.time() - _UNUSED:
            path.unlink(missing_ok=True)
