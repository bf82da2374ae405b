"""Writes the tables of options and of exit statuses into cli.md: `python docs/make_commands.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from celery_sqs_heartbeat.cli.group import sqs_heartbeat
from celery_sqs_heartbeat.exits import FOUND_WHEN, REFUSED_WHEN, STATUSES
from celery_sqs_heartbeat.journal.__main__ import main as journal
from celery_sqs_heartbeat.pipeline.__main__ import main as pipeline
from celery_sqs_heartbeat.testing.server import main as server
from celery_sqs_heartbeat.worker.install import HEARTBEAT_SQS

DOCUMENT = Path(__file__).with_name("cli.md")
#: The name of what is between the marks: a command's, or `exit statuses`.
BLOCK = re.compile(
    r"(<!-- Begin: ([^>]+?)\. By docs/make_commands\.py -->\n).*?(<!-- End -->)", re.S
)
STATUS_TABLE = "exit statuses"
#: How a worker's command begins: its options are Celery's, but for ours.
WORKER = "celery -A proj worker"


def commands() -> dict[str, click.Command]:
    """Return all commands by how their lines begin."""
    of_modules = {
        "python -m celery_sqs_heartbeat.journal": journal,
        "python -m celery_sqs_heartbeat.testing.server": server,
    }
    groups = {
        "celery -A proj sqs-heartbeat": sqs_heartbeat,
        "python -m celery_sqs_heartbeat.pipeline": pipeline,
    }
    in_groups = {
        f"{start} {name}": command
        for start, group in groups.items()
        for name, command in sorted(group.commands.items())
    }
    worker = click.Command("worker", params=[HEARTBEAT_SQS])
    return {**in_groups, **of_modules, WORKER: worker}


def with_tables(text: str) -> str:
    """Return the document with the tables that are true now.

    Raises:
        KeyError: A block names no command.
        ValueError: A command, or the table of exit statuses, has no block.
    """
    blocks = {STATUS_TABLE: _statuses(), **{k: _options(k, v) for k, v in commands().items()}}
    if missing := set(blocks) - {name for _, name, _ in BLOCK.findall(text)}:
        raise ValueError(f"{DOCUMENT.name} has no block for {', '.join(sorted(missing))}")
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n{found[3]}", text)


def _options(start: str, command: click.Command) -> str:
    context = click.Context(command)
    usage = " ".join([start, *command.collect_usage_pieces(context)])
    # What an argument is, the usage and the text beside it say.
    options = [each for each in command.params if isinstance(each, click.Option)]
    rows = [_row(option, context) for option in options]
    table = ["| option | default | meaning |\n", "|---|---|---|\n", *rows] if rows else []
    return "".join([f"`{usage}`\n", "\n" if rows else "", *table])


def _row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{_metavar(option, context)}`"
    default = "must be given" if option.required else ""
    if isinstance(option.show_default, str):
        default = option.show_default
    elif option.show_default:
        shown = " ".join(option.default) if option.multiple else option.default
        default = f"`{shown}`"
    notes = [option.help or ""]
    if option.multiple:
        notes.append("May be given more than once.")
    if option.envvar:
        notes.append(f"From the environment: `{option.envvar}`.")
    return f"| {names}{value} | {default} | {' '.join(notes)} |\n"


def _metavar(option: click.Option, context: click.Context) -> str:
    metavar = option.make_metavar(context)
    if metavar.startswith("["):
        metavar = metavar[1:-1]
    # A bar in a table ends the cell.
    return metavar.replace("|", "\\|")


def _statuses() -> str:
    return "".join(
        [
            "| status | meaning | for |\n|---|---|---|\n",
            *(
                f"| {status} | {meaning} | {'; '.join(_own(status))} |\n"
                for status, meaning in STATUSES.items()
            ),
        ]
    )


def _own(status: int) -> Iterator[str]:
    own: Mapping[str, str] = {1: FOUND_WHEN, 2: REFUSED_WHEN}.get(status, {})
    for name, when in sorted(own.items()):
        yield f"`{name}`: {when}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
