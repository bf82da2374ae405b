"""Discards all log lines: pytest would format millions of lines that no test reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
