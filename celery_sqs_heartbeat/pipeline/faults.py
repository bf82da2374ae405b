"""What commands say if something fails: one line with the way out, where Spark writes hundreds.

They also say what is not installed, what could not be read, and how far they are.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import click

from celery_sqs_heartbeat.common.exits import FOUND, Refusal
from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: The environment variable that shows Spark's errors in full.
DEBUG = "SQS_HEARTBEAT_DEBUG"
#: Packages whose exceptions are Spark's.
_OF_SPARK = ("pyspark", "py4j", "grpc")
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
#: The exception's class, which Java puts before a message.
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
#: Longest text of a cause that is shown.
_MOST = 300
#: Ways out, by a pattern in the cause.
_WAYS_OUT = {
    r"No space left|Disk quota|File too large": (
        "make room in the warehouse and in the folder for temporary files (TMPDIR)"
    ),
    r"usable temporary directory": "set TMPDIR to a folder that this user may write to",
    r"Permission denied|Mkdirs failed|Read-only|AccessDenied": (
        "use places that this user may write to"
    ),
    r"CONFLICTING_(DIRECTORY|PARTITION)": (
        "Spark reads every folder in a journal as a part of it: move away everything except "
        "dt=YYYY-MM-DD/worker=ID"
    ),
    r"FAILED_READ_FILE|[Pp]arquet": (
        "remove damaged files, and build their days again with the pipeline's run"
    ),
    r"Answer from Java side|Connection refused|OutOfMemory": (
        "the engine has exited, usually because it ran out of memory: process fewer days at a time"
    ),
}
_ANY_WAY_OUT = f"{DEBUG}=1 shows the whole error"
_INSTALL = "pip install 'celery-sqs-heartbeat[pipeline]'"


class PipelineError(SqsHeartbeatError):
    """The pipeline can't run as requested. The message has the way out."""


def require(module: str, title: str) -> None:
    """Refuse to continue without a package of the extra.

    Raises:
        Refusal: It is not installed.
    """
    if find_spec(module) is None:
        raise Refusal(f"this needs {title}: {_INSTALL}")


def warn_of(unread: str) -> None:
    """Say on standard error what could not be read, and exit with `FOUND`; if it is something."""
    if unread:
        click.echo(f"Warning: {unread}.", err=True)
        click.get_current_context().exit(FOUND)


def progress_line() -> Callable[[str], None]:
    """Return a function that shows the progress in one line, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(what: str) -> None:
        click.echo(f"\r\x1b[K{what}" + (" …" if what else ""), err=True, nl=False)

    return show


@contextmanager
def spark_faults(what: str) -> Iterator[None]:
    """Raise Spark's or the system's error as one of ours, and always end the progress line.

    Args:
        what: Spark's work, in words.

    Raises:
        PipelineError: Instead of that error.
    """
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        if os.environ.get(DEBUG) or not (isinstance(error, OSError) or _is_of_spark(error)):
            raise
        cause = cause_of(error)
        raise PipelineError(f"can't {what}: {cause}; {_way_out(cause)}") from None
    finally:
        # So the next output starts on its own line.
        progress_line()("")


def cause_of(error: BaseException) -> str:
    """Return the message of an error's first cause, in one line."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    texts = [str(error)]
    while java is not None:
        texts.append(java.toString())
        java = java.getCause()
    text = texts[-1]
    if causes := [cause for each in texts for cause in _CAUSE.findall(each)]:
        text = causes[-1]
    line = _CLASS.sub("", " ".join(text.split("\n\tat ", 1)[0].split()))
    return line if len(line) <= _MOST else f"{line[:_MOST]}…"


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _OF_SPARK


def _way_out(cause: str) -> str:
    found = (way_out for pattern, way_out in _WAYS_OUT.items() if re.search(pattern, cause))
    return next(found, _ANY_WAY_OUT)
