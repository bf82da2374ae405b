"""Writes the tables of options, exit statuses and findings into cli.md: `docs/make_commands.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from celery_sqs_heartbeat.cli import sqs_heartbeat
from celery_sqs_heartbeat.cli.examination import FINDINGS
from celery_sqs_heartbeat.common.exits import DONE, FOUND, FOUND_WHEN, REFUSED, REFUSED_WHEN
from celery_sqs_heartbeat.journal.__main__ import main as journal
from celery_sqs_heartbeat.pipeline.__main__ import main as pipeline
from celery_sqs_heartbeat.testing.server import main as server
from celery_sqs_heartbeat.worker.step import HEARTBEAT_SQS

DOCUMENT = Path(__file__).with_name("cli.md")
#: The name of what is between the marks: a command's, or that of another table.
BLOCK = re.compile(
    r"(<!-- Begin: ([^>]+?)\. By docs/make_commands\.py -->\n).*?(<!-- End -->)", re.S
)
STATUS_TABLE = "exit statuses"
FINDING_TABLE = "findings"
#: What each status means, for all commands.
STATUSES: Mapping[int, str] = {
    DONE: "done, and nothing needs action",
    FOUND: "done, and something needs action, or there is nothing to show",
    REFUSED: "not done, because of an option, a path, a setting or an answer. One line on standard "
    "error names the cause and the way out. The doctor lists its findings instead",
}
#: How a worker's command begins. Its options are Celery's, except for our own.
WORKER = "celery -A proj worker"
#: Code in a text.
_CODE = re.compile(
    r"""
    (
        `[^`]+`                             # what is marked as such
        | (?<![\w-]) --[a-z][\w-]*          # a long option
        | [\w.]*_[\w.]*\w                   # a name with an underscore
          (?: \(\) | \s?=\s?(?:"[^"]*"|\w+) )?    # and its call or value
    )
    """,
    re.VERBOSE,
)
#: What Markdown takes for emphasis, a link, HTML or the end of a cell.
_MARKS = re.compile(r"[\\*_\[\]<>|]")


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
        ValueError: A command, or another table, has no block.
    """
    blocks = {
        STATUS_TABLE: _statuses(),
        FINDING_TABLE: _findings(),
        **{k: _options(k, v) for k, v in commands().items()},
    }
    if missing := set(blocks) - {name for _, name, _ in BLOCK.findall(text)}:
        raise ValueError(f"{DOCUMENT.name} has no block for {', '.join(sorted(missing))}")
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n{found[3]}", text)


def as_markdown(text: str) -> str:
    """Return a text of the code so that GitHub and the site show all its characters."""
    return "".join(_piece(piece) for piece in _CODE.split(text))


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
    value = "" if option.is_flag else f" {_value(option, context)}"
    default = "must be given" if option.required else ""
    if isinstance(option.show_default, str):
        default = as_markdown(option.show_default)
    elif option.show_default:
        shown = " ".join(option.default) if option.multiple else option.default
        default = f"`{shown}`"
    notes = [as_markdown(option.help or "")]
    if option.multiple:
        notes.append("May be given more than once.")
    if option.envvar:
        notes.append(f"From the environment: `{option.envvar}`.")
    return f"| {names}{value} | {default} | {' '.join(notes)} |\n"


def _value(option: click.Option, context: click.Context) -> str:
    # A choice in two code spans, as a bar can't be in one: GitHub wants it escaped there, and
    # Python-Markdown, which makes the site, shows the escape.
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{choice}`" for choice in option.type.choices)
    return f"`{option.make_metavar(context)}`"


def _findings() -> str:
    rows = (f"| `{each.id}` | {as_markdown(each.title)} |\n" for each in FINDINGS.values())
    return "".join(["| id | what it found |\n|---|---|\n", *rows])


def _statuses() -> str:
    return "".join(
        [
            "| status | meaning | when |\n|---|---|---|\n",
            *(
                f"| {status} | {as_markdown(meaning)} | {'; '.join(_own(status))} |\n"
                for status, meaning in STATUSES.items()
            ),
        ]
    )


def _own(status: int) -> Iterator[str]:
    own: Mapping[str, str] = {FOUND: FOUND_WHEN, REFUSED: REFUSED_WHEN}.get(status, {})
    for name, when in sorted(own.items()):
        yield f"`{name}`: {as_markdown(when)}"


def _piece(piece: str) -> str:
    if _CODE.fullmatch(piece):
        return f"`{piece.strip('`')}`"
    return _MARKS.sub(r"\\\g<0>", piece)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
