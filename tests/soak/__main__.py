"""Audits a soak again, from its saved records: `python -m tests.soak RECORDS`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from tests.soak.audit import audit
from tests.soak.report import describe, overused, summarize

verdicts = audit(records := pickle.loads(Path(sys.argv[1]).read_bytes()))
found = [describe(verdict, records) for verdict in verdicts if verdict.faults]
sys.stdout.write("\n\n".join([*found, summarize(verdicts, records), *overused(verdicts), ""]))
