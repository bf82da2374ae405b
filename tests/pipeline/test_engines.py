"""Engines that are not there, and the parts in which Sail folds."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.pipeline.__main__ import main
from celery_sqs_heartbeat.pipeline.engine.sail.kept_frames import ends_of
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all


def test_a_missing_sail_is_reported_with_how_to_install_it(tmp_path: Path) -> None:
    journal = write_all(tmp_path / "j", [Worker("w1", DAY)])
    places = ["--journal", str(journal), "--warehouse", str(tmp_path / "w")]
    result = CliRunner().invoke(main, ["run", "--engine", "sail", *places])
    assert result.exit_code == 2
    assert "pip install 'celery-sqs-heartbeat[sail]'" in result.output


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        ([], []),
        ([4], []),
        ([4, 6], []),
        ([4, 7], ["a"]),
        ([11], []),
        ([11, 1], ["a"]),
        ([1, 11], ["a"]),
        ([5, 5, 5, 5], ["b"]),
        ([0, 0, 11, 1], ["c"]),
        ([6, 6, 6], ["a", "b"]),
    ],
)
def test_a_part_has_at_most_ten_lines_or_one_worker(lines: list[int], ends: list[str]) -> None:
    assert ends_of(list(zip("abcdef", lines, strict=False)), 10) == ends
