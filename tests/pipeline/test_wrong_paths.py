"""Each command x each kind of wrong path: one line, the exit status, and no engine started."""

from __future__ import annotations

import os
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

from celery_sqs_heartbeat.cli import sqs_heartbeat, whole_files
from celery_sqs_heartbeat.common.exits import FOUND, REFUSED
from celery_sqs_heartbeat.journal.__main__ import main as journal_command
from celery_sqs_heartbeat.pipeline import jobs, session
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


def without(name: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        build_warehouse(folder)
        for path in sorted((folder / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (folder / name).rmdir()

    return build


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
NO_PLACE = "neither a journal nor a warehouse"
APART = "a separate folder"
locked_table = locked(build_warehouse, "workers", DT)
of_other_tool = with_file(f"{DT}/part-0.json", "{}")
word_of_other_tool = with_file("dt=yesterday/part-0.json", "{}")
day_of_word = with_file("dt=yesterday/worker=w1/seg-1.jsonl.open", "{}")
empty_segment = with_file(SEGMENT)
#: The kind, what builds it, the path in it, and which commands print what.
CASES: list[tuple[str, Callable[[Path], None], str, tuple[str, ...], str]] = [
    ("missing", nothing, "", LOOKS, "does not exist"),
    ("a file", Path.touch, "", LOOKS + WRITES, "is a file"),
    ("below a file", Path.touch, "below", WRITES, "is a file"),
    ("an empty folder", Path.mkdir, "", LOOKS, "is an empty folder"),
    ("a folder of documents", build_documents, "", LOOKS, f"contains {NO_PLACE}"),
    ("a folder of documents", build_documents, "", WRITES, APART),
    ("a journal", build_journal, "", WRITES, "is a journal, where a warehouse"),
    ("a warehouse", build_warehouse, "", READS, "is a warehouse, where a journal"),
    ("a day of a journal", build_journal, DT, LOOKS + WRITES, "one day of a journal"),
    ("a table", build_warehouse, "attempts", LOOKS + WRITES, "one table of a warehouse"),
    ("a locked folder", locked(build_journal), "", LOOKS, "Permission denied: run this as"),
    ("a locked folder", locked(build_journal), "", WRITES, "Permission denied"),
    ("a locked worker", locked(build_journal, DT, "worker=w1"), "", LOOKS, "Permission denied"),
    ("a locked segment", locked(build_journal, SEGMENT), "", LOOKS, "Permission denied"),
    ("a locked table", locked_table, "", SOURCE + WRITES, "Permission denied"),
    ("a read-only warehouse", read_only(build_warehouse), "", WRITES, "not writable"),
    ("a read-only folder", read_only(Path.mkdir), "new", WRITES, "not writable"),
    ("a warehouse without a table", without("durations"), "", SOURCE, "has no table durations"),
    ("a cut table", cut, "", SOURCE, "is not a complete Parquet file"),
    ("a cut table", cut, "", WRITES, "not a complete Parquet"),
    (
        "a warehouse of another version",
        of_another_version,
        "",
        SOURCE,
        "has no column censored: another version",
    ),
    ("a warehouse of another version", of_another_version, "", WRITES, "another version"),
    ("a day of another tool", of_other_tool, "", LOOKS, NO_PLACE),
    ("a day of another tool", of_other_tool, "", WRITES, APART),
    ("a day that is a word, of another tool", word_of_other_tool, "", LOOKS, NO_PLACE),
    ("a day that is a word", day_of_word, "", LOOKS, "dt=yesterday, which is not a valid day"),
    ("nothing but an empty closed segment", empty_segment, "", LOOKS, "nothing that can be read"),
    ("a day that is none", no_day, "", LOOKS, "dt=2026-13-45, which is not a valid day"),
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
        for module in (jobs, page, session):
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


TABLE = [
    pytest.param(build, below, name, said, id=f"{name}: {kind}")
    for kind, build, below, names, said in CASES
    for name in names
]


@pytest.mark.parametrize(("build", "below", "name", "said"), TABLE)
def test_a_wrong_path_is_one_line_and_status_2(
    home: Path, build: Callable[[Path], None], below: str, name: str, said: str
) -> None:
    build(home / "given")
    path = Path("given", below)
    command, arguments = COMMANDS[name]
    with as_another_user():
        result = call(command, arguments.format(path))
    assert_one_line(result, REFUSED, said)
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


@pytest.mark.parametrize(
    ("journal", "warehouse"), [("s3://b/j", "s3a://b/journal"), (JOURNAL, "journal-tables")]
)
def test_places_beside_each_other_are_right(home: Path, journal: str, warehouse: str) -> None:
    result = call(pipeline, f"run --journal {journal} --warehouse {warehouse}")
    assert isinstance(result.exception, StartedError), result.output


#: Right places: a command continues with them.
RIGHT = [
    *((name, build) for name in SOURCE for build in (build_journal, build_warehouse)),
    *((name, build_journal) for name in READS if name != "journal"),
    *((name, build) for name in WRITES for build in (nothing, Path.mkdir, build_warehouse)),
]


@pytest.mark.parametrize(("name", "build"), RIGHT)
def test_a_right_path_starts_the_engine(
    home: Path, name: str, build: Callable[[Path], None]
) -> None:
    build(home / "given")
    command, arguments = COMMANDS[name]
    result = call(command, arguments.format("given"))
    assert isinstance(result.exception, StartedError), result.output


@pytest.mark.parametrize("name", LOOKS)
def test_a_journal_that_was_just_begun_has_no_events_yet(home: Path, name: str) -> None:
    just_begun(home / "given")
    command, arguments = COMMANDS[name]
    assert_one_line(call(command, arguments.format("given")), FOUND, "has no events yet")


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


@pytest.mark.parametrize("name", [*SOURCE, *READS[:-1], *WRITES])
def test_a_url_is_left_to_the_engine(home: Path, name: str) -> None:
    command, arguments = COMMANDS[name]
    result = call(command, arguments.format("s3a://bucket/prefix"))
    assert isinstance(result.exception, StartedError), result.output


#: Without the days that are asked for.
OF_DAYS = [name for name in LOOKS if name != "tune"]


@pytest.mark.parametrize("name", OF_DAYS)
def test_days_without_events_are_status_1(home: Path, name: str) -> None:
    command, arguments = COMMANDS[name]
    result = call(command, [*arguments.format(JOURNAL).split(), *LATER])
    assert_one_line(result, FOUND, "has no ")
    assert list(home.iterdir()) == [home / JOURNAL]


def test_days_without_rows_in_a_warehouse_are_status_1(home: Path) -> None:
    build_warehouse(home / "given")
    command, arguments = COMMANDS["report"]
    result = call(command, [*arguments.format("given").split(), *LATER])
    assert_one_line(result, FOUND, "has no rows from 2027-01-01: its days are 2026-03-14")


def test_a_warehouse_without_a_row_is_status_1(home: Path) -> None:
    build_warehouse(home / "given")
    for day in (home / "given").glob("*/dt=*"):
        (day / "part-0.parquet").unlink()
        day.rmdir()
    command, arguments = COMMANDS["report"]
    result = call(command, arguments.format("given"))
    assert_one_line(result, FOUND, "'given' has no rows: its tables are empty")
    result = call(command, [*arguments.format("given").split(), "--to", "2020-01-01"])
    assert_one_line(result, FOUND, "'given' has no rows up to 2020-01-01: its tables are empty")


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
        full.setattr(whole_files.Path, "write_bytes", fill)
        result = call(sqs_heartbeat, ["report", JOURNAL])
    assert_one_line(result, REFUSED, "No space left on device")
    assert out.read_text() == "the old page"
    assert call(sqs_heartbeat, ["report", JOURNAL]).exit_code == 0
    assert out.read_text() == "the new page"
    assert stat.S_IMODE(out.stat().st_mode) == 0o604
    assert {path.name for path in home.iterdir()} == {JOURNAL, "report.html"}
