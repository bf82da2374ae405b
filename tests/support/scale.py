"""How many examples open-ended tests try: a few in `make test`, more in `make test-deep`."""

from __future__ import annotations

import os

#: Set by `make test-deep`.
THOROUGH = "THOROUGH" in os.environ


def scaled(usual: int, thorough: int) -> int:
    """Return how many examples to try in this run."""
    return thorough if THOROUGH else usual
