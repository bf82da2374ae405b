"""Times the pipeline's tables on a fleet's events that were multiplied, from Parquet.

python -m benchmarks.pipeline --events 10000000 30000000 --shape even hot

The events are made once, in a folder that later runs use again. `hot` has 95 % of the messages
in one queue. The journal of two million compressed lines is timed at last.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pipeline_data import SHAPES, Data
from benchmarks.pipeline_spark import make_tables, read_journal
from celery_sqs_heartbeat.pipeline.session import new_session


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[10_000_000, 30_000_000])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--folder", type=Path, default=Path("build/pipeline-benchmark"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    spark = new_session("benchmark")
    data, out = Data(spark, folder), folder / "tables"
    for size in options.events:
        for shape in options.shape:
            events = data.events(size, shape)
            shutil.rmtree(out, ignore_errors=True)
            _show(f"{size:,} events, {shape}", make_tables(spark, events, out))
    journal = data.journal()
    shutil.rmtree(out, ignore_errors=True)
    _show("journal of JSON Lines: reading", read_journal(spark, journal, out))
    _show("journal of JSON Lines: its tables from Parquet", make_tables(spark, out, out))
    sys.stdout.write(f"peak of the JVM: {_peak_mb():,.0f} MB\n")
    spark.stop()


def _show(title: str, seconds: Mapping[str, float]) -> None:
    sys.stdout.write(f"{title} (load {os.getloadavg()[0]:.1f})\n")
    for name, value in {**seconds, "all": sum(seconds.values())}.items():
        sys.stdout.write(f"  {name:16} {value:7.1f} s\n")
    sys.stdout.flush()


def _peak_mb() -> float:
    """Return the most memory that a Java child of this process held."""
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        found = dict(re.findall(r"^(Name|PPid|VmHWM):\s+(\S+)", text, re.MULTILINE))
        if found.get("Name") == "java" and int(found["PPid"]) == os.getpid():
            peaks.append(int(found.get("VmHWM", 0)))
    return max(peaks) / 1024


if __name__ == "__main__":
    main()
