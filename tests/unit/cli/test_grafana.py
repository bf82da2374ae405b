"""`celery sqs-heartbeat grafana`: the files it writes, and what it refuses."""

from __future__ import annotations

import errno
import os
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from celery_sqs_heartbeat.cli.report import FILES, grafana
from celery_sqs_heartbeat.common.exits import DONE, REFUSED

SOURCE = files("celery_sqs_heartbeat.observe") / "grafana"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(grafana, [str(each) for each in arguments])


def assert_refused(result: Result, *words: object) -> None:
    assert (result.exit_code, result.stdout) == (REFUSED, "")
    (line,) = result.stderr.splitlines()
    for word in words:
        assert str(word) in line


def test_it_writes_all_files_into_a_new_folder(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = run("--out", out)
    assert result.exit_code == DONE, result.output
    assert result.stdout.splitlines() == [f"Wrote {out / name}" for name in FILES]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        each.name: each.read_bytes() for each in SOURCE.iterdir()
    }


def test_it_replaces_files_only_with_force(tmp_path: Path) -> None:
    alerts = tmp_path / "alerts.yml"
    alerts.write_text("mine")
    assert_refused(run("--out", tmp_path), alerts, "--force")
    assert os.listdir(tmp_path) == ["alerts.yml"]
    assert alerts.read_text() == "mine"
    assert run("--out", tmp_path, "--force").exit_code == DONE
    assert alerts.read_bytes() == (SOURCE / "alerts.yml").read_bytes()


def test_a_wrong_path_is_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert_refused(run("--out", file), file, "is a file")
    assert_refused(run("--out", file / "below"), file / "below", "Not a directory", "--out")
    (tmp_path / "dashboard.json").mkdir()
    dashboard = tmp_path / "dashboard.json"
    assert_refused(run("--out", tmp_path, "--force"), dashboard, "Is a directory", "--out")


def test_the_error_on_a_full_disk_names_the_file_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        path.write_text(content[:3].decode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    result = run("--out", tmp_path)
    assert_refused(result, tmp_path / "dashboard.json", "No space left on device")
    # Otherwise the next run would refuse to replace an incomplete dashboard.
    assert os.listdir(tmp_path) == []


def test_a_folder_that_can_not_be_created_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert_refused(run("--out", tmp_path / "new"), tmp_path / "new", "Permission denied")
