"""What `make test` shows of the README is what the README says."""

from __future__ import annotations

import pytest

from tests.acceptance.promises import PROMISES
from tests.support.markdown import ROOT


@pytest.mark.parametrize("words", PROMISES)
def test_each_promise_is_in_the_readme(words: str) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert words in readme
