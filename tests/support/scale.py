"""How many examples open-ended tests try: a few in `make test`, more in `make test-deep`."""

from __future__ import annotations

import os

#: Set by `make test-deep`.
THOROUGH = "THOROUGH" in os.environ
#: Set by `python -m tests.pythons`: each other Python tries this share of the usual number.
FEW_EXAMPLES = "FEW_EXAMPLES" in os.environ
SHARE = 5


def scaled(usual: int, thorough: int) -> int:
    """Return how many examples to try in this run."""
    if THOROUGH:
        return thorough
    return usual // SHARE if FEW_EXAMPLES else usual
