"""`python -m tests.running`: run a group of tests and keep what it cost, or show the costs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tests.running.costs import Cost, show, take_over
from tests.running.group import run_group

#: Where the costs of the last runs are, unless COSTS names another folder.
FOLDER = Path(os.environ.get("COSTS", "build/costs"))


@click.group()
def main() -> None:
    """Run groups of tests, and keep what they cost."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("group")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(group: str, command: tuple[str, ...]) -> None:
    """Run a group's COMMAND; end with its exit code."""
    ended = run_group(list(command))
    Cost(seconds=ended.seconds, cpu_seconds=ended.cpu_seconds).write(FOLDER, group)
    for left in ended.left:
        click.echo(f"{group} left a process behind, which was killed: {left}", err=True)
    sys.exit(ended.exit_code or bool(ended.left))


@main.command()
@click.argument("groups", nargs=-1, required=True)
def costs(groups: tuple[str, ...]) -> None:
    """Show what GROUPS cost beside their last run, and take this one for the last."""
    click.echo(show(FOLDER, groups))
    take_over(FOLDER, groups)


if __name__ == "__main__":
    main()
