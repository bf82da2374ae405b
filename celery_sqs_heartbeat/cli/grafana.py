"""The command `grafana`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from celery_sqs_heartbeat.cli.whole_files import write_whole
from celery_sqs_heartbeat.common.exits import Command, Refusal

#: The files to write: the dashboard for Grafana, the rules for Prometheus.
FILES = ("dashboard.json", "alerts.yml")


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
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Refusal(f"--out {out} is a file: name a folder") from None
    except OSError as error:
        raise _unwritable(out, error) from None
    # Check both files before writing either.
    if not force and (there := [str(path) for path in targets if path.exists()]):
        raise Refusal(f"{' and '.join(there)} exist already: replace them with --force")
    source = files("celery_sqs_heartbeat.observe") / "grafana"
    for path in targets:
        try:
            write_whole(path, (source / path.name).read_bytes())
        except OSError as error:
            raise _unwritable(path, error) from None
        click.echo(f"Wrote {path}")


def _unwritable(path: Path, error: OSError) -> Refusal:
    return Refusal(f"can't write to {path} ({error.strerror}): name another folder with --out")
