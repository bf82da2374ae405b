"""The package stays small enough to review: `make lint` fails above the limits of its sizes."""

from __future__ import annotations

import re

import pytest

from tests import size


def test_each_size_out_of_its_limits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "tests", list)
    monkeypatch.setattr(
        size, "LIMITS", {"core": (1, 10**6), "package": (10**6, 1), "tests": (10**6, 10**6)}
    )
    monkeypatch.setattr(size, "LONGEST_FILE", 10)
    monkeypatch.setattr(size, "MEAN_COMPLEXITY", 1.0)
    monkeypatch.setattr(size, "ASSET_LINES", 1)
    with pytest.raises(SystemExit) as exit_:
        size.main()
    for said in (
        r"core has \d+ files, \d+ above its limit",
        r"core has only [\d,]+ lines: lower the limit",
        r"package has only \d+ files: lower the limit",
        r"package has [\d,]+ lines, [\d,]+ above its limit",
        r"tests has only .* files: lower the limit",
        r"worker/step.py has \d+ lines, at most 10 are allowed",
        r"a complexity of .*, at most 1.0 is allowed",
        r"the assets have .*, at most 1 are allowed",
    ):
        assert re.search(said, str(exit_.value))


def test_the_core_is_what_a_worker_loads_at_once_or_late() -> None:
    core = {path.relative_to(size.PACKAGE).as_posix() for path in size.core()}
    assert {"worker/step.py", "keeper/__main__.py", "observe/otel.py"} <= core
    assert not {path for path in core if path.startswith(("pipeline/", "cli/", "testing/"))}
