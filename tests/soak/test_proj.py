"""What the soak's workers write down, where the audit relies on when they do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.soak import proj


def test_a_lost_connection_is_written_down_before_celery_waits_for_its_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(proj, "write", done.append)
    consumer = SimpleNamespace(on_connection_error_after_connected=done.append, steps=[])
    proj.WritesDisconnects(consumer)
    error = OSError("lost")
    consumer.on_connection_error_after_connected(error)
    assert done == ["disconnect", error]
