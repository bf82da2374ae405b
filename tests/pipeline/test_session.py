from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from celery_sqs_heartbeat.pipeline import session

_ENVIRON = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what Spark would be configured with."""
    settings: dict[str, str] = {}

    def configured(builder: object, conf: Mapping[str, str]) -> SimpleNamespace:
        settings.update(conf)
        return SimpleNamespace(getOrCreate=lambda: None)

    for name in _ENVIRON:
        monkeypatch.delenv(name, raising=False)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "as it was")
    monkeypatch.setattr(session, "_configured", configured)
    monkeypatch.setattr(session, "use_java", lambda: settings.update(java="sought"))
    return settings


def test_alone_it_is_local_and_what_the_caller_asks_for_wins(asked: dict[str, str]) -> None:
    session.new_session("tests", {"spark.driver.memory": "1g"})
    assert asked["spark.master"] == "local[*]"
    assert asked["spark.driver.memory"] == "1g"
    assert asked["java"] == "sought"


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
