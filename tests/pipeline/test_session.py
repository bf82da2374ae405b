from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from celery_sqs_heartbeat.pipeline.engine import session

_ENVIRON = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what Spark would be configured with."""
    settings: dict[str, str] = {}

    class Builder:
        def appName(self, name: str) -> Builder:
            return self

        def config(self, key: str, value: str) -> Builder:
            settings[key] = value
            return self

        def getOrCreate(self) -> None:
            """Start nothing."""

    for name in _ENVIRON:
        monkeypatch.delenv(name, raising=False)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "as it was")
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=Builder()))
    # Java's own, which has no archive.
    monkeypatch.setenv("JAVA_HOME", "/")
    monkeypatch.setattr(session, "use_java", lambda: settings.update(java="sought"))
    return settings


def test_alone_it_is_local_and_what_the_caller_asks_for_wins(asked: dict[str, str]) -> None:
    session.new_session("tests", {"spark.driver.memory": "1g"})
    assert asked["spark.master"] == "local[*]"
    assert asked["spark.driver.memory"] == "1g"
    assert asked["java"] == "sought"


@pytest.mark.parametrize(
    ("sizes", "is_small"),
    [((), True), ((5_000_000, 3_000_000), True), ((5_000_000, 3_000_001), False)],
)
def test_for_a_small_folder_it_plans_for_little(
    asked: dict[str, str], tmp_path: Path, sizes: tuple[int, ...], is_small: bool
) -> None:
    for number, size in enumerate(sizes):
        segment = tmp_path / f"worker={number}" / "seg-1.jsonl.zst"
        segment.parent.mkdir()
        with segment.open("wb") as file:
            file.truncate(size)
    session.new_session("tests", {"spark.master": "local[1]"}, str(tmp_path))
    assert (asked.get("spark.sql.adaptive.enabled") == "false") is is_small
    assert ("TieredStopAtLevel=1" in asked["spark.driver.extraJavaOptions"]) is is_small
    assert asked["spark.master"] == "local[1]"


@pytest.mark.parametrize(("size", "is_tiny"), [(1_000_000, True), (1_000_001, False)])
def test_only_for_a_tiny_folder_plans_are_interpreted(
    asked: dict[str, str], tmp_path: Path, size: int, is_tiny: bool
) -> None:
    with (tmp_path / "seg-1.jsonl.zst").open("wb") as file:
        file.truncate(size)
    session.new_session("tests", source=str(tmp_path))
    assert asked["spark.sql.adaptive.enabled"] == "false"
    assert (asked.get("spark.sql.codegen.wholeStage") == "false") is is_tiny


@pytest.mark.parametrize("source", [None, "s3://bucket/journal", "no/such/folder"])
def test_of_what_is_no_folder_here_it_plans_for_much(
    asked: dict[str, str], source: str | None
) -> None:
    session.new_session("tests", source=source)
    assert "spark.sql.adaptive.enabled" not in asked


@pytest.mark.parametrize(
    ("name", "value", "java"),
    [
        ("PYSPARK_GATEWAY_PORT", "4711", None),
        ("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell", None),
        ("SPARK_REMOTE", "sc://spark.example", None),
        ("SPARK_REMOTE", "local[2]", "sought"),
    ],
)
def test_a_cluster_s_own_settings_stay_as_they_are(
    asked: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, java: str | None
) -> None:
    monkeypatch.setenv(name, value)
    session.new_session("tests")
    assert asked.pop("java", None) == java
    assert set(asked) == {
        "spark.sql.session.timeZone",
        "spark.sql.sources.partitionOverwriteMode",
        "spark.sql.codegen.aggregate.map.twolevel.enabled",
    }
