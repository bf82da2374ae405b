"""`celery sqs-heartbeat grafana`: the files it writes, and what it refuses."""

from __future__ import annotations

import errno
import os
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.cli.report import FILES, grafana
from celery_sqs_heartbeat.common.exits import DONE, REFUSED

SOURCE = files("celery_sqs_heartbeat.observe") / "grafana"


def assert_refused(out: Path, *words: object, force: bool = False) -> None:
    result = CliRunner().invoke(grafana, ["--out", str(out), *(["--force"] if force else [])])
    assert (result.exit_code, result.stdout) == (REFUSED, "")
    (line,) = result.stderr.splitlines()
    assert [word for word in words if str(word) not in line] == []


def test_it_writes_all_files_and_replaces_others_only_with_force(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = CliRunner().invoke(grafana, ["--out", str(out)])
    assert result.exit_code == DONE, result.output
    assert result.stdout.splitlines() == [f"Wrote {out / name}" for name in FILES]
    written = {each.name: each.read_bytes() for each in SOURCE.iterdir()}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    (out / "dashboard.json").unlink()
    (out / "alerts.yml").write_text("mine")
    assert_refused(out, out / "alerts.yml", "--force")
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("alerts.yml", "mine")]
    assert CliRunner().invoke(grafana, ["--force", "--out", str(out)]).exit_code == DONE
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written


def test_a_path_that_can_not_be_written_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path, content: bytes) -> None:
        path.write_text(content[:3].decode())
        raise OSError(errno.ENOSPC, "No space left on device")

    def deny(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    assert_refused(file, file, "is a file")
    assert_refused(file / "below", file / "below", "Not a directory", "--out")
    dashboard = folder / "dashboard.json"
    dashboard.mkdir(parents=True)
    assert_refused(folder, dashboard, "Is a directory", "--out", force=True)
    dashboard.rmdir()
    monkeypatch.setattr(Path, "write_bytes", fill)
    assert_refused(folder, dashboard, "No space left on device")
    # Otherwise the next run would refuse to replace an incomplete dashboard.
    assert os.listdir(folder) == []
    monkeypatch.setattr(Path, "mkdir", deny)
    assert_refused(folder, folder, "Permission denied")
