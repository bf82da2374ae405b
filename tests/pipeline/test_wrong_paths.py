"""Each command x each kind of wrong path: one line, the exit status, and no engine started."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import click
import pyarrow
import pyarrow.parquet
import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celery_sqs_heartbeat.cli import sqs_heartbeat
from celery_sqs_heartbeat.journal.__main__ import main as journal_command
from celery_sqs_heartbeat.pipeline import jobs, spark
from celery_sqs_heartbeat.pipeline.__main__ import main as pipeline
from celery_sqs_heartbeat.pipeline.report import page
from celery_sqs_heartbeat.pipeline.schema import PARTITION, TABLES
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all
from tests.support.golden import golden

#: Another user of the machine, where the tests run as root.
OTHER = 65_534
DT = "dt=2026-03-14"
LATER = "--from 2027-01-01"
#: The arguments for the paths that are not wrong.
JOURNAL, TABLES_OF_JOURNAL, NEW = "journal", "warehouse", "new"


class StartedError(Exception):
    """An engine was started."""


def start(*_: object, **__: object) -> None:
    raise StartedError


#: The command and its arguments, by what in them is the path. `{}` stands for it.
COMMANDS: dict[str, tuple[click.Command, str]] = {
    "report": (sqs_heartbeat, "report {}"),
    "tune": (sqs_heartbeat, "tune {}"),
    "run, its journal": (pipeline, f"run --journal {{}} --warehouse {NEW}"),
    "run, its warehouse": (pipeline, f"run --journal {JOURNAL} --warehouse {{}}"),
    "journal": (journal_command, "{}"),
}
SOURCE = "report", "tune"
READS = "run, its journal", "journal"
WRITES = ("run, its warehouse",)
LOOKS = (*SOURCE, *READS)


def build_journal(folder: Path) -> None:
    worker = Worker("w1", DAY)
    worker.attempt("m1", 1, DAY, 20, "message-deleted")
    write_all(folder, [worker])


def build_warehouse(folder: Path) -> None:
    for table in TABLES.values():
        day = folder / table.name / DT
        day.mkdir(parents=True)
        columns = {name: ["x"] for name in table.names if name != PARTITION}
        pyarrow.parquet.write_table(pyarrow.table(columns), day / "part-0.parquet")


def build_documents(folder: Path) -> None:
    folder.mkdir()
    (folder / "letter.txt").write_text("Hello")
    # A table's name alone makes no table.
    (folder / "events").mkdir()
    (folder / "events" / "party.txt").write_text("Come")


def just_begun(folder: Path) -> None:
    build_journal(folder)
    (closed,) = folder.rglob("*.zst")
    closed.with_name("seg-1.jsonl.open").touch()
    closed.unlink()


def without_durations(folder: Path) -> None:
    build_warehouse(folder)
    shutil.rmtree(folder / "durations")


def without_days(folder: Path) -> None:
    build_warehouse(folder)
    for day in folder.glob("*/dt=*"):
        shutil.rmtree(day)


def cut(folder: Path) -> None:
    build_warehouse(folder)
    file = folder / "workers" / DT / "part-0.parquet"
    file.write_bytes(file.read_bytes()[:-20])


def of_another_version(folder: Path) -> None:
    build_warehouse(folder)
    file = folder / "durations" / DT / "part-0.parquet"
    kept = pyarrow.parquet.ParquetFile(file).read().drop_columns(["censored"])
    pyarrow.parquet.write_table(kept, file)


def locked(build: Callable[[Path], None], *parts: str) -> Callable[[Path], None]:
    """Return a function that builds the same, with a part that only its owner may read."""

    def build_locked(folder: Path) -> None:
        build(folder)
        folder.joinpath(*parts).chmod(0)

    return build_locked


def read_only(build: Callable[[Path], None]) -> Callable[[Path], None]:
    def build_read_only(folder: Path) -> None:
        build(folder)
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)

    return build_read_only


def with_file(name: str, text: str = "") -> Callable[[Path], None]:
    """Return what builds a folder with nothing but that file."""

    def build(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)

    return build


def no_day(folder: Path) -> None:
    (folder / "dt=2026-13-45" / "worker=w1").mkdir(parents=True)


def nothing(folder: Path) -> None:
    """Leave it out."""


SEGMENT = f"{DT}/worker=w1/seg-1.jsonl.zst"
locked_table = locked(build_warehouse, "workers", DT)
of_other_tool = with_file(f"{DT}/part-0.json", "{}")
word_of_other_tool = with_file("dt=yesterday/part-0.json", "{}")
day_of_word = with_file("dt=yesterday/worker=w1/seg-1.jsonl.open", "{}")
OF_DAYS = tuple(name for name in LOOKS if name != "tune")
#: By name: what is built at `given`, the path in it, and the commands for which that is wrong.
CASES: dict[str, tuple[Callable[[Path], None], str, tuple[str, ...]]] = {
    "nothing": (nothing, "", LOOKS),
    "a file": (Path.touch, "", LOOKS + WRITES),
    "in a file": (Path.touch, "below", WRITES),
    "an empty folder": (Path.mkdir, "", LOOKS),
    "documents": (build_documents, "", LOOKS + WRITES),
    "a journal": (build_journal, "", WRITES),
    "a warehouse": (build_warehouse, "", READS),
    "a day": (build_journal, DT, LOOKS + WRITES),
    "a table": (build_warehouse, "attempts", LOOKS + WRITES),
    "a locked journal": (locked(build_journal), "", LOOKS + WRITES),
    "a locked worker": (locked(build_journal, DT, "worker=w1"), "", LOOKS),
    "a locked segment": (locked(build_journal, SEGMENT), "", LOOKS),
    "a locked table": (locked_table, "", SOURCE + WRITES),
    "a read-only warehouse": (read_only(build_warehouse), "", WRITES),
    "in a read-only folder": (read_only(Path.mkdir), "new", WRITES),
    "a table is missing": (without_durations, "", SOURCE),
    "a file is cut": (cut, "", SOURCE + WRITES),
    "another version's": (of_another_version, "", SOURCE + WRITES),
    "another tool's": (of_other_tool, "", LOOKS + WRITES),
    "another tool's, of a word": (word_of_other_tool, "", LOOKS),
    "a word as a day": (day_of_word, "", LOOKS),
    "an empty segment": (with_file(SEGMENT), "", LOOKS),
    "no day of the calendar": (no_day, "", LOOKS),
    # There is nothing of these days, or nothing yet.
    "has just begun": (just_begun, "", LOOKS),
    "a journal of other days": (build_journal, LATER, OF_DAYS),
    "a warehouse of other days": (build_warehouse, LATER, ("report",)),
    "a warehouse without days": (without_days, "", ("report",)),
}


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import what the commands do as they run: another user might not be able to."""
    for command, arguments in COMMANDS.values():
        call(command, arguments.format("nowhere"))


@contextmanager
def folder_with_journal() -> Iterator[Path]:
    """Work in a folder that others may enter, with a journal; a Spark that starts is an error."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        folder.chmod(0o777)
        patch.chdir(folder)
        for module in (jobs, page, spark):
            patch.setattr(module, "new_session", start)
        build_journal(folder / JOURNAL)
        yield folder


@pytest.fixture
def home() -> Iterator[Path]:
    with folder_with_journal() as folder:
        yield folder


@contextmanager
def as_another_user() -> Iterator[None]:
    """Drop root's rights for a while: it may read and write everything."""
    if os.geteuid():
        yield
        return
    for path in Path().rglob("*"):
        os.chown(path, OTHER, OTHER)
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)


def call(command: click.Command, arguments: str | list[str]) -> Result:
    app = Celery("proj", broker="sqs://")
    return CliRunner().invoke(command, arguments, obj=SimpleNamespace(app=app, no_color=True))


def line_of(result: Result) -> str:
    """Return the exit status, and the only line that a command printed."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return f"{result.exit_code} {line}"


def test_a_wrong_path_is_one_line_and_a_status() -> None:
    lines = []
    for case, (build, below, names) in CASES.items():
        for name in names:
            command, arguments = COMMANDS[name]
            path, options = ("given", LATER) if below == LATER else (Path("given", below), "")
            with folder_with_journal() as home:
                build(home / "given")
                with as_another_user():
                    line = line_of(call(command, f"{arguments.format(path)} {options}"))
                assert not (home / NEW).exists()
            assert "given" in line
            lines.append(f"{case}: {name}: {line}\n")
    for name, (command, arguments) in COMMANDS.items():
        empty = [each.format("") for each in arguments.split()]
        with folder_with_journal():
            lines.append(f"empty: {name}: {line_of(call(command, empty))}\n")
    golden("wrong_paths.txt", "".join(lines))


#: Places of which one is in another.
NESTED = (
    f"{JOURNAL} --warehouse {JOURNAL}/new",
    f"./{JOURNAL} --warehouse {JOURNAL}/a/b",
    f"link --warehouse {JOURNAL}/new",
    f"{TABLES_OF_JOURNAL}/j --warehouse {TABLES_OF_JOURNAL}",
    "s3://b/j --warehouse s3a://b/j/w",
    "s3a://b/j/ --warehouse s3://b//j",
)


def test_places_that_are_in_each_other_are_refused(home: Path) -> None:
    """Spark would read tables in a journal as a part of it."""
    (home / "link").symlink_to(JOURNAL)
    build_warehouse(home / TABLES_OF_JOURNAL)
    build_journal(home / TABLES_OF_JOURNAL / "j")
    ended = [line_of(call(pipeline, f"run --journal {places}")) for places in NESTED]
    golden("nested_paths.txt", "\n".join([*ended, ""]))
    assert not (home / JOURNAL / "new").exists()


S3 = "s3a://bucket/prefix"
#: Right places: what is built at `given`, and commands that continue with it or with a URL.
RIGHT: list[tuple[Callable[[Path], None], str]] = [
    *((build, f"{name} given") for name in SOURCE for build in (build_journal, build_warehouse)),
    (build_journal, f"run --journal given --warehouse {NEW}"),
    *(
        (build, f"run --journal {JOURNAL} --warehouse given")
        for build in (nothing, Path.mkdir, build_warehouse)
    ),
    *((nothing, f"{name} {S3}") for name in SOURCE),
    (nothing, f"run --journal {S3} --warehouse {NEW}"),
    (nothing, f"run --journal {JOURNAL} --warehouse {S3}"),
    (nothing, "run --journal s3://b/j --warehouse s3a://b/journal"),
    (nothing, f"run --journal {JOURNAL} --warehouse {JOURNAL}-tables"),
]


@pytest.mark.parametrize(("build", "arguments"), RIGHT)
def test_a_right_path_starts_the_engine(
    home: Path, build: Callable[[Path], None], arguments: str
) -> None:
    build(home / "given")
    command = pipeline if arguments.startswith("run") else sqs_heartbeat
    result = call(command, arguments)
    assert isinstance(result.exception, StartedError), result.output


@pytest.mark.parametrize(
    ("name", "path", "is_looked_at"),
    [
        ("report", "nowhere", False),
        ("run, its journal", "nowhere", False),
        ("run, its warehouse", "letter", False),
        ("report", "file:/nowhere", True),
        ("run, its journal", "file:///nowhere", True),
        ("journal", "nowhere", True),
    ],
)
@pytest.mark.parametrize("cluster", [("PYSPARK_GATEWAY_PORT", "1"), ("SPARK_REMOTE", "sc://host")])
def test_on_a_cluster_a_path_without_a_scheme_is_left_to_spark(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: tuple[str, str],
    name: str,
    path: str,
    is_looked_at: bool,
) -> None:
    monkeypatch.setenv(*cluster)
    (home / "letter").touch()
    command, arguments = COMMANDS[name]
    result = call(command, arguments.format(path))
    assert isinstance(result.exception, SystemExit if is_looked_at else StartedError)


#: What is built at `given`, and what `--out` is then.
OUTS: list[tuple[Callable[[Path], None], str]] = [
    (nothing, "given/page.html"),
    (Path.touch, "given/page.html"),
    (Path.mkdir, "given"),
    (read_only(Path.mkdir), "given/page.html"),
    (read_only(Path.touch), "given"),
    (locked(Path.mkdir), "given/page.html"),
]


def test_a_page_that_can_not_be_written_is_reported_before_anything_is_read() -> None:
    lines = []
    for build, out in OUTS:
        with folder_with_journal() as home:
            build(home / "given")
            with as_another_user():
                # The journal is not read either.
                lines.append(line_of(call(sqs_heartbeat, f"report nowhere --out {out}")))
    golden("wrong_outs.txt", "\n".join([*lines, ""]))


def test_an_existing_page_survives_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, content: bytes) -> None:
        path.write_text(content[:3].decode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "page_of", lambda *_, **__: ("the new page", ""))
    said = "can't be written: No space left on device"
    assert said in line_of(call(sqs_heartbeat, f"report {JOURNAL} --out /dev/full"))
    out = home / "report.html"
    out.write_text("the old page")
    out.chmod(0o604)
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fill)
        assert said in line_of(call(sqs_heartbeat, f"report {JOURNAL}"))
    assert out.read_text() == "the old page"
    assert call(sqs_heartbeat, f"report {JOURNAL}").exit_code == 0
    assert out.read_text() == "the new page"
    assert stat.S_IMODE(out.stat().st_mode) == 0o604
    assert {path.name for path in home.iterdir()} == {JOURNAL, "report.html"}
