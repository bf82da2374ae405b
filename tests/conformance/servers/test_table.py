"""The table of known differences names only behaviours and servers that exist."""

from __future__ import annotations

import pytest

from tests.conformance.servers import (
    test_batches,
    test_dead_letters,
    test_fifo,
    test_fifo_groups,
    test_handles,
    test_visibility,
)
from tests.conformance.servers.differences import KNOWN
from tests.conformance.servers.target import AWS_PREFIX, targets

MODULES = (
    test_batches,
    test_dead_letters,
    test_fifo,
    test_fifo_groups,
    test_handles,
    test_visibility,
)
BEHAVIOURS = {
    name: function
    for module in MODULES
    for name, function in vars(module).items()
    if name.startswith("test_")
}


def test_the_table_names_behaviours_and_servers_that_are_tested() -> None:
    assert set(KNOWN) <= set(BEHAVIOURS)
    assert {server for by in KNOWN.values() for server in by} <= {"moto", "ministack", "localstack"}


def test_each_behaviour_names_its_source() -> None:
    silent = [name for name, function in BEHAVIOURS.items() if not function.__doc__]
    assert silent == []


def test_aws_is_tested_only_when_prefix_and_credentials_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv(AWS_PREFIX, raising=False)
    assert _names() == ["simulated", "moto", "ministack", "localstack"]
    monkeypatch.setenv(AWS_PREFIX, "mine-")
    assert _names() == ["simulated", "moto", "ministack", "localstack", "aws"]


def _names() -> list[str]:
    found = targets()
    for target in found:
        target.stop()
    return [target.name for target in found]
