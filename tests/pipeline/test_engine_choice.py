"""Which engine a command uses by itself: by what is installed, where it runs, and its paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from celery_sqs_heartbeat.pipeline.engine import choice as engine_choice
from celery_sqs_heartbeat.pipeline.engine.choice import choose
from celery_sqs_heartbeat.pipeline.options import AUTO, SAIL, SPARK

ALL = ("pysail", "grpc", "pandas", "pyarrow")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with Sail and a PySpark that it works with."""
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, ALL, (4, 2))
    return monkeypatch


def install(
    machine: pytest.MonkeyPatch, modules: tuple[str, ...], pyspark: tuple[int, int]
) -> None:
    machine.setattr(engine_choice, "find_spec", lambda name: name if name in modules else None)
    machine.setattr(engine_choice, "_pyspark_version", lambda: pyspark)


@pytest.mark.parametrize(
    ("modules", "pyspark", "engine", "reason"),
    [
        (ALL, (4, 1), SAIL, "it is installed and can do this on one machine"),
        (ALL, (4, 2), SAIL, "it is installed and can do this on one machine"),
        (ALL, (4, 3), SPARK, "Sail works with PySpark up to 4.2, and 4.3 is installed"),
        (("pysail", "grpc"), (4, 2), SPARK, "Sail needs pandas, pyarrow, which is not installed"),
        ((), (4, 2), SPARK, "Sail, which is faster on one machine, is not installed"),
    ],
)
def test_what_is_installed_decides(
    machine: pytest.MonkeyPatch,
    modules: tuple[str, ...],
    pyspark: tuple[int, int],
    engine: str,
    reason: str,
) -> None:
    install(machine, modules, pyspark)
    choice = choose(AUTO, "journal", "tables")
    assert (choice.engine, choice.reason) == (engine, reason)


@pytest.mark.parametrize(
    ("source", "warehouse", "engine"),
    [
        ("journal", None, SAIL),
        ("journal", "tables", SAIL),
        ("file:/var/journal", "tables", SAIL),
        ("s3://bucket/journal", "tables", SAIL),
        ("s3a://bucket/journal", "tables", SPARK),
        ("hdfs://host/journal", None, SPARK),
        ("journal", "s3://bucket/tables", SPARK),
        ("journal-[1]", None, SPARK),
        ("journal", "tables*", SPARK),
    ],
)
def test_the_paths_decide(
    machine: pytest.MonkeyPatch, source: str, warehouse: str | None, engine: str
) -> None:
    assert choose(AUTO, source, warehouse).engine == engine


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARK_REMOTE", "sc://spark.example"),
        ("PYSPARK_GATEWAY_PORT", "4711"),
        ("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell"),
    ],
)
def test_an_existing_spark_is_used(machine: pytest.MonkeyPatch, name: str, value: str) -> None:
    machine.setenv(name, value)
    assert choose(AUTO, "journal").engine == SPARK


def test_the_choice_is_told_in_one_line(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(AUTO, "journal").say()
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "Using Sail, because it is installed and can do this on one machine.\n",
    )


@pytest.mark.parametrize("engine", [SPARK, SAIL])
def test_an_engine_that_the_user_names_is_used_without_a_word(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    install(machine, (), (4, 3))
    choice = choose(engine, "hdfs://host/journal")
    choice.say()
    assert choice.engine == engine
    assert capsys.readouterr() == ("", "")
