"""`python -m tests.running`: runs a group of tests, shows the cost of groups, or repeats a command.

`python -m tests.running repeat --times 10 --load 4 make test` shows how often a command fails on a
busy machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tests.running.costs import Cost, show, take_over
from tests.running.group import run_group
from tests.running.hardship import load, quota
from tests.running.repeating import repeat
from tests.running.stalls import stalls

#: The folder with the costs of the last runs, unless COSTS names another one.
FOLDER = Path(os.environ.get("COSTS", "build/costs"))


@click.group()
def main() -> None:
    """Run groups of tests, and store what they cost."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("group")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(group: str, command: tuple[str, ...]) -> None:
    """Run a group's COMMAND, and exit with its exit code."""
    ended = run_group(list(command))
    Cost(seconds=ended.seconds, cpu_seconds=ended.cpu_seconds).write(FOLDER, group)
    for left in ended.left:
        click.echo(f"{group} left a process behind, which was killed: {left}", err=True)
    sys.exit(ended.exit_code or bool(ended.left))


@main.command()
@click.argument("groups", nargs=-1, required=True)
def costs(groups: tuple[str, ...]) -> None:
    """Compare the cost of GROUPS with their last run, and make this run the last one."""
    click.echo(show(FOLDER, groups))
    take_over(FOLDER, groups)


@main.command("repeat", context_settings={"ignore_unknown_options": True})
@click.option("--times", type=click.IntRange(1), default=10, show_default=True)
@click.option("--load", "busy", type=click.IntRange(0), default=0, metavar="PROCESSES")
@click.option(
    "--quota",
    "share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Of all cores; 0.5 is half.",
)
@click.option(
    "--stalls",
    "longest",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Stop all processes for random times of up to SECONDS, half of the time.",
)
@click.option(
    "--logs", type=click.Path(path_type=Path), default=Path("build/repeated"), show_default=True
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def repeat_command(
    times: int,
    busy: int,
    share: float | None,
    longest: float,
    logs: Path,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND repeatedly: beside other processes, with a part of the CPU, or with stalls."""
    with load(busy), quota(share), stalls(longest):
        failures = repeat(list(command), times, logs, click.echo)
    click.echo(f"{failures} of {times} failed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
