"""The example project's modules, for the tests that need neither a site nor a worker."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.example import FOLDER

Studio = Callable[[str], ModuleType]


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    """Import a module of the example; its jobs are in a folder of the test's."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("STUDIO_FOLDER", str(tmp_path))
    monkeypatch.setattr(importlib.import_module("studio.jobs"), "ROOT", tmp_path)
    return lambda name: importlib.import_module(f"studio.{name}")
