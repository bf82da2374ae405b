"""Runs the soak: no message may be lost, and none done again without a cause.

The test fails if the audit cannot explain a message's history, or a receive that led to no
execution, if a cause explains more than its share (`table.py`), or if a worker exits without a
reason or does not exit. The records of a soak are kept in its folder: `python -m tests.soak
RECORDS` audits them again.

`SOAK_SECONDS` sets the duration and `SOAK_SEED` the seed (`make soak`). The same seed makes the
same choices. But processes are not deterministic, so their behaviour differs between runs.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
from pathlib import Path

import pytest

from tests.soak.audit import audit
from tests.soak.driver import Soak
from tests.soak.report import describe, overused, summarize
from tests.soak.workers import MACHINE

pytestmark = pytest.mark.thorough

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
#: A failure shows the history of so many messages.
SHOWN = 5


def test_every_message_is_accounted_for_after_random_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.randrange(1_000_000))
    soak = Soak(seed=seed, seconds=SECONDS, folder=tmp_path)
    with capsys.disabled():
        sys.stdout.write(f"\nsoak for {SECONDS:.0f} s with SOAK_SEED={seed}, in {tmp_path}\n")
    records = soak.run()
    (tmp_path / "records.pickle").write_bytes(pickle.dumps(records))
    verdicts = audit(records)
    summary = summarize(verdicts, records)
    with capsys.disabled():
        sys.stdout.write(f"{summary}\n")

    unaccounted = [describe(verdict, records) for verdict in verdicts if verdict.faults]
    assert not unaccounted, "\n\n".join(
        [f"SOAK_SEED={seed}: {len(unaccounted)} messages", *unaccounted[:SHOWN], summary]
    )
    excuses = overused(verdicts)
    assert not excuses, "\n".join([f"SOAK_SEED={seed}:", *excuses, summary])
    assert not soak.surprises, f"SOAK_SEED={seed}: {soak.surprises}"
    # A soak in which nothing happens proves nothing. On a slow machine, less happens.
    assert len(verdicts) > SECONDS / 3
    assert (
        sum(bool(harm.worker) and harm.what not in MACHINE for harm in records.harms) > SECONDS / 6
    )
    assert sum(len(verdict.redeliveries) for verdict in verdicts) > SECONDS / 6
