"""The lease book keeps its promises after anything that Hypothesis does to it.

The faults that this has found are rows of `tests/unit/test_book.py`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.model.machine import BookMachine
from tests.support.scale import scaled

#: `MODEL_EXAMPLES=20000 pytest tests/model` tries more, with other examples each time.
EXAMPLES = os.environ.get("MODEL_EXAMPLES")

CI = settings(
    max_examples=int(EXAMPLES or scaled(200, 1000)),
    stateful_step_count=60,
    derandomize=not EXAMPLES,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestLeaseBook = BookMachine.TestCase
TestLeaseBook.settings = CI
