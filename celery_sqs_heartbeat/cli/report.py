"""The commands that write files completely, or not at all: `report` and `grafana`."""

from __future__ import annotations

import datetime
import os
import shutil
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import click

from celery_sqs_heartbeat.common.days import Span, check_days, from_option, to_option
from celery_sqs_heartbeat.common.exits import Command, Refusal, epilog, refusing
from celery_sqs_heartbeat.pipeline.faults import require, spark_faults, warn_of

#: What `grafana` writes: the dashboard for Grafana, the rules for Prometheus.
FILES = ("dashboard.json", "alerts.yml")
_MODES = {"effective_ids": os.access in os.supports_effective_ids}


@click.command(cls=Command, epilog=epilog("report"))
@click.argument("source", metavar="JOURNAL_OR_WAREHOUSE")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="File to write the page to.",
)
@from_option
@to_option
def report(source: str, out: Path, first: datetime.date | None, last: datetime.date | None) -> None:
    """Write a page about what happened to the messages.

    JOURNAL_OR_WAREHOUSE is the folder or URL of the workers' journals (sqs_heartbeat_journal), or
    the warehouse: the tables that the pipeline built from them. The page begins with the period
    that it covers. If there are no messages in these days, the command writes no page and exits
    with 1. If a part can't be read, it writes the page of the rest, names the part on standard
    error, and exits with 1. If JOURNAL_OR_WAREHOUSE is neither, it exits with 2.
    """
    check_days(first, last)
    require("pyspark", "PySpark")
    require("jinja2", "Jinja2")
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.pipeline.path_checks import check_source
    from celery_sqs_heartbeat.pipeline.schema import REPORTED

    _check(out)
    with refusing():
        span = Span(first, last)
        is_journal = check_source(source, span, REPORTED)
        from celery_sqs_heartbeat.pipeline.report.page import page_of

        with spark_faults(f"report on {source!r}"):
            page, unread = page_of(source, span, is_journal=is_journal)
    content = page.encode()
    try:
        write_whole(out, content)
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None
    click.echo(f"Wrote {out}, {len(content) // 1000:,} kB.")
    warn_of(unread)


def _check(out: Path) -> None:
    """Check that a page can be written to a path, before the work for it begins.

    Raises:
        Refusal: The path is a folder, or its folder is missing or not writable.
    """
    try:
        if out.is_dir():
            raise _refusal(out, "it is a folder")
        if out.exists():
            if not _is_permitted(out, os.W_OK):
                raise _refusal(out, "it is not writable by this user")
        elif not out.parent.is_dir():
            raise _refusal(out, f"there is no folder {str(out.parent)!r}")
        elif not _is_permitted(out.parent, os.W_OK | os.X_OK):
            raise _refusal(out, f"{str(out.parent)!r} is not writable by this user")
    except OSError as error:
        raise _refusal(out, str(error.strerror)) from None


def _refusal(out: Path, fault: str) -> Refusal:
    return Refusal(f"--out {str(out)!r} can't be written: {fault}; name a file that can be written")


@click.command(cls=Command)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The folder to write to, created if it is missing. Without it, the current folder.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
def grafana(out: Path, force: bool) -> None:
    """Write a Grafana dashboard and Prometheus alerting rules for the workers' metrics.

    The files are dashboard.json and alerts.yml.
    """
    targets = [out / name for name in FILES]
    path = out
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Check both files before writing either.
        if not force and (there := [str(each) for each in targets if each.exists()]):
            raise Refusal(f"{' and '.join(there)} exist already: replace them with --force")
        for path in targets:
            source = files("celery_sqs_heartbeat.observe") / "grafana" / path.name
            write_whole(path, source.read_bytes())
    except FileExistsError:
        raise Refusal(f"--out {out} is a file: name a folder") from None
    except OSError as error:
        raise Refusal(
            f"can't write to {path} ({error.strerror}): name another folder with --out"
        ) from None
    click.echo("\n".join(f"Wrote {path}" for path in targets))


def write_whole(out: Path, content: bytes) -> None:
    """Write a file. An existing file stays unchanged until the new one is complete.

    Raises:
        OSError: The file can't be written.
    """
    # A draft beside the file is impossible for a device, and in a folder that is not writable.
    is_beside = not out.exists() or (
        out.is_file() and not out.is_symlink() and _is_permitted(out.parent, os.W_OK)
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
            # After a success the draft no longer exists.
            with suppress(OSError):
                draft.unlink()


def _is_permitted(path: Path, mode: int) -> bool:
    """Return whether this process may use a path in a mode, such as `os.W_OK`."""
    return os.access(path, mode, **_MODES)
