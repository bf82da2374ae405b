"""The archive of Spark's classes: when Java uses it, writes it, and does neither."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from celery_sqs_heartbeat.pipeline.engine import class_archive
from celery_sqs_heartbeat.pipeline.engine.class_archive import SWITCH, archive_options
from celery_sqs_heartbeat.pipeline.engine.jdk_shim import shimmed_home

WRITES, USES = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that only writes an archive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv(SWITCH, raising=False)
    path = tmp_path / "jdk" / "java"
    path.parent.mkdir()
    path.write_text(
        "#!/bin/sh\nfor it do case $it in -XX:Arch*=*) echo classes > ${it#*=};; esac; done\n"
        'exit "${STATUS:-0}"\n'
    )
    path.chmod(0o755)
    return path


def run(home: Path, options: str, status: int = 0) -> int:
    command = [home / "bin" / "java", *options.split()]
    return subprocess.run(command, env={**os.environ, "STATUS": str(status)}).returncode


def test_the_first_java_writes_an_archive_and_the_next_uses_it(java: Path) -> None:
    home = shimmed_home(java)
    first = archive_options(home)
    assert first.startswith(WRITES)
    assert run(home, first) == 0
    (archive,) = home.glob("classes-*")
    assert archive.read_text() == "classes\n"
    assert archive_options(home).startswith(f"{USES}{archive} ")


def test_a_java_that_fails_leaves_no_archive(java: Path) -> None:
    home = shimmed_home(java)
    assert run(home, archive_options(home), status=3) == 3
    assert not list(home.glob("classes-*"))


def test_another_java_or_spark_has_another_archive(
    java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shimmed_home(java)
    assert run(home, archive_options(home)) == 0
    os.utime(java, (1, 1))
    assert archive_options(home).startswith(WRITES)
    assert run(home, archive_options(home)) == 0
    monkeypatch.setattr(class_archive.pyspark, "__version__", "0")
    assert archive_options(home).startswith(WRITES)


def test_an_archive_that_was_not_used_for_long_is_removed(java: Path) -> None:
    home = shimmed_home(java)
    old, new = home / "classes-old.jsa", home / "classes-new.jsa"
    for path in (old, new):
        path.touch()
    os.utime(old, (1, time.time() - 100 * 86_400))
    archive_options(home)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("why", ["switched off", "no wrapper", "no room", "a space in the path"])
def test_there_is_no_archive(java: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    home = shimmed_home(java)
    if why == "switched off":
        monkeypatch.setenv(SWITCH, "0")
    elif why == "no wrapper":
        home = java.parent
    elif why == "no room":
        monkeypatch.setattr(class_archive, "_LEAST_FREE_BYTES", 1 << 60)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(java.parent / "a b"))
        home = shimmed_home(java)
    assert archive_options(home) == ""
