"""Helpers that the commands of the pipeline share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

import click

from celery_sqs_heartbeat.common.exits import FOUND, Refusal

INSTALL = "pip install 'celery-sqs-heartbeat[pipeline]'"


def require_pyspark() -> None:
    """Refuse to continue without PySpark.

    Raises:
        Refusal: It is not installed.
    """
    _require("pyspark", "PySpark")


def require_jinja2() -> None:
    """Refuse to continue without Jinja2, which renders the report.

    Raises:
        Refusal: It is not installed.
    """
    _require("jinja2", "Jinja2")


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


def _require(module: str, title: str) -> None:
    if find_spec(module) is None:
        raise Refusal(f"this needs {title}: {INSTALL}")
