"""The package stays small enough to review: `make lint` fails above the limits of its sizes."""

from __future__ import annotations

import pytest

from tests import size


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("LIMITS", {"core": (1, 10**6)}, "core has .* files, .* above its limit"),
        ("LIMITS", {"core": (10**6, 1)}, "core has .* lines, .* above its limit"),
        ("LIMITS", {"core": (10**6, 10**6)}, "core has only .* lines: lower the limit"),
        ("LONGEST_FILE", 10, "step.py has .* at most 10 are allowed"),
        ("MEAN_COMPLEXITY", 1.0, "a complexity of .* at most 1.0"),
        ("ASSET_LINES", 1, "the assets have .* at most 1 "),
    ],
)
def test_a_size_out_of_its_limits_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: object, said: str
) -> None:
    monkeypatch.setattr(size, name, limit)
    with pytest.raises(SystemExit, match=said):
        size.main()


def test_the_core_is_what_a_worker_loads_at_once_or_late() -> None:
    core = {path.relative_to(size.PACKAGE).as_posix() for path in size.core()}
    assert {"worker/step.py", "keeper/__main__.py", "observe/otel.py"} <= core
    assert not {path for path in core if path.startswith(("pipeline/", "cli/", "testing/"))}
