"""Audits a soak again, from its saved records: `python -m tests.soak RECORDS`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from tests.soak.audit import audit
from tests.soak.report import overused, summarize, trace

verdicts = audit(records := pickle.loads(Path(sys.argv[1]).read_bytes()))
for verdict in verdicts:
    if verdict.faults:
        sys.stdout.write(f"{'; '.join(verdict.faults)}\n{trace(verdict.message, records)}\n\n")
sys.stdout.write(f"{summarize(verdicts, records)}\n")
sys.stdout.writelines(f"{fault}\n" for fault in overused(verdicts))
