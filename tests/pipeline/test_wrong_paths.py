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
from typing import NamedTuple

import click
import pyarrow
import pyarrow.parquet
import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celery_sqs_heartbeat.cli import sqs_heartbeat
from celery_sqs_heartbeat.common.exits import FOUND, REFUSED
from celery_sqs_heartbeat.journal.__main__ import main as journal_command
from celery_sqs_heartbeat.pipeline import jobs, spark
from celery_sqs_heartbeat.pipeline.__main__ import main as pipeline
from celery_sqs_heartbeat.pipeline.report import page
from celery_sqs_heartbeat.pipeline.schema import PARTITION, TABLES
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all

#: Another user of the machine, where the tests run as root.
OTHER = 65_534
DT = "dt=2026-03-14"
LATER = ("--from", "2027-01-01")
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


class Wrong(NamedTuple):
    """A wrong path, and what commands print.

    Attributes:
        below: The path in what is built.
    """

    build: Callable[[Path], None]
    names: tuple[str, ...]
    said: str
    below: str = ""
    status: int = REFUSED
    options: tuple[str, ...] = ()


SEGMENT = f"{DT}/worker=w1/seg-1.jsonl.zst"
NO_PLACE = "neither a journal nor a warehouse"
APART = "a separate folder"
DENIED = "Permission denied"
locked_table = locked(build_warehouse, "workers", DT)
of_other_tool = with_file(f"{DT}/part-0.json", "{}")
word_of_other_tool = with_file("dt=yesterday/part-0.json", "{}")
day_of_word = with_file("dt=yesterday/worker=w1/seg-1.jsonl.open", "{}")
OF_DAYS = tuple(name for name in LOOKS if name != "tune")
CASES: list[Wrong] = [
    Wrong(nothing, LOOKS, "does not exist"),
    Wrong(Path.touch, LOOKS + WRITES, "is a file"),
    Wrong(Path.touch, WRITES, "is a file", "below"),
    Wrong(Path.mkdir, LOOKS, "is an empty folder"),
    Wrong(build_documents, LOOKS, f"contains {NO_PLACE}"),
    Wrong(build_documents, WRITES, APART),
    Wrong(build_journal, WRITES, "is a journal, where a warehouse"),
    Wrong(build_warehouse, READS, "is a warehouse, where a journal"),
    Wrong(build_journal, LOOKS + WRITES, "one day of a journal", DT),
    Wrong(build_warehouse, LOOKS + WRITES, "one table of a warehouse", "attempts"),
    Wrong(locked(build_journal), LOOKS, f"{DENIED}: run this as"),
    Wrong(locked(build_journal), WRITES, DENIED),
    Wrong(locked(build_journal, DT, "worker=w1"), LOOKS, DENIED),
    Wrong(locked(build_journal, SEGMENT), LOOKS, DENIED),
    Wrong(locked_table, SOURCE + WRITES, DENIED),
    Wrong(read_only(build_warehouse), WRITES, "not writable"),
    Wrong(read_only(Path.mkdir), WRITES, "not writable", "new"),
    Wrong(without_durations, SOURCE, "has no table durations"),
    Wrong(cut, SOURCE + WRITES, "is not a complete Parquet file"),
    Wrong(of_another_version, SOURCE + WRITES, "has no column censored: another version"),
    Wrong(of_other_tool, LOOKS, NO_PLACE),
    Wrong(of_other_tool, WRITES, APART),
    Wrong(word_of_other_tool, LOOKS, NO_PLACE),
    Wrong(day_of_word, LOOKS, "dt=yesterday, which is not a valid day"),
    Wrong(with_file(SEGMENT), LOOKS, "nothing that can be read"),
    Wrong(no_day, LOOKS, "dt=2026-13-45, which is not a valid day"),
    # There is nothing of these days, or nothing yet.
    Wrong(just_begun, LOOKS, "has no events yet", status=FOUND),
    Wrong(build_journal, OF_DAYS, "has no ", status=FOUND, options=LATER),
    Wrong(
        *(build_warehouse, ("report",), "has no rows from 2027-01-01: its days are 2026-03-14"),
        status=FOUND,
        options=LATER,
    ),
    Wrong(without_days, ("report",), "has no rows: its tables are empty", status=FOUND),
]


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import what the commands do as they run: another user might not be able to."""
    for command, arguments in COMMANDS.values():
        call(command, arguments.format("nowhere"))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that others may enter, with a journal; a Spark that starts fails the test."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.chdir(folder)
        for module in (jobs, page, spark):
            monkeypatch.setattr(module, "new_session", start)
        build_journal(folder / JOURNAL)
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


def assert_one_line(result: Result, status: int, said: str) -> None:
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert said in line
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        pytest.param(wrong, name, id=f"{name}: {number}")
        for number, wrong in enumerate(CASES)
        for name in wrong.names
    ],
)
def test_a_wrong_path_is_one_line_and_a_status(home: Path, wrong: Wrong, name: str) -> None:
    wrong.build(home / "given")
    command, arguments = COMMANDS[name]
    path = Path("given", wrong.below)
    with as_another_user():
        result = call(command, [*arguments.format(path).split(), *wrong.options])
    assert_one_line(result, wrong.status, wrong.said)
    assert "given" in result.stderr
    assert not (home / NEW).exists()


#: By the command: places of which one is in another, and the error.
NESTED: dict[str, str] = {
    f"run --journal {JOURNAL} --warehouse {JOURNAL}/new": "'journal/new' is in the journal 'jour",
    f"run --journal ./{JOURNAL} --warehouse {JOURNAL}/a/b": "is in the journal",
    f"run --journal link --warehouse {JOURNAL}/new": "is in the journal 'link'",
    f"run --journal {TABLES_OF_JOURNAL}/j --warehouse {TABLES_OF_JOURNAL}": "is in the warehouse",
    "run --journal s3://b/j --warehouse s3a://b/j/w": "is in the journal",
    "run --journal s3a://b/j/ --warehouse s3://b//j": "is the same place as the warehouse",
}


@pytest.mark.parametrize("arguments", NESTED)
def test_places_that_are_in_each_other_are_refused(home: Path, arguments: str) -> None:
    """Spark would read tables in a journal as a part of it."""
    (home / "link").symlink_to(JOURNAL)
    if "/j " in arguments:
        build_warehouse(home / TABLES_OF_JOURNAL)
        build_journal(home / TABLES_OF_JOURNAL / "j")
    assert_one_line(call(pipeline, arguments), REFUSED, NESTED[arguments])
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


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_path_is_not_the_working_folder(home: Path, name: str) -> None:
    command, arguments = COMMANDS[name]
    result = call(command, [each.format("") for each in arguments.split()])
    assert_one_line(result, REFUSED, "the path '' is empty")


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


#: By kind: what `--out` is, and the error before anything is read.
OUTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "in a missing folder": (nothing, "given/page.html", "there is no folder 'given'"),
    "in a file": (Path.touch, "given/page.html", "can't be written"),
    "a folder": (Path.mkdir, "given", "it is a folder"),
    "in a read-only folder": (read_only(Path.mkdir), "given/page.html", "'given' is not writable"),
    "a read-only file": (read_only(Path.touch), "given", "it is not writable"),
    "in a locked folder": (locked(Path.mkdir), "given/page.html", "can't be written"),
}


@pytest.mark.parametrize("kind", OUTS)
def test_a_page_that_can_not_be_written_is_reported_before_anything_is_read(
    home: Path, kind: str
) -> None:
    build, out, said = OUTS[kind]
    build(home / "given")
    with as_another_user():
        # The journal is not read either.
        result = call(sqs_heartbeat, ["report", "nowhere", "--out", out])
    assert_one_line(result, REFUSED, said)


@pytest.fixture
def made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is made at once."""
    monkeypatch.setattr(page, "page_of", lambda *_, **__: ("the new page", ""))


@pytest.mark.usefixtures("made_at_once")
def test_a_full_disk_is_one_line(home: Path) -> None:
    result = call(sqs_heartbeat, ["report", JOURNAL, "--out", "/dev/full"])
    assert_one_line(result, REFUSED, "'/dev/full' can't be written: No space left on device")


@pytest.mark.usefixtures("made_at_once")
def test_an_existing_page_survives_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = home / "report.html"
    out.write_text("the old page")
    out.chmod(0o604)

    def fill(path: Path, content: bytes) -> None:
        path.write_text(content[:3].decode())
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fill)
        result = call(sqs_heartbeat, ["report", JOURNAL])
    assert_one_line(result, REFUSED, "No space left on device")
    assert out.read_text() == "the old page"
    assert call(sqs_heartbeat, ["report", JOURNAL]).exit_code == 0
    assert out.read_text() == "the new page"
    assert stat.S_IMODE(out.stat().st_mode) == 0o604
    assert {path.name for path in home.iterdir()} == {JOURNAL, "report.html"}
