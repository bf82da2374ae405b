"""Measures Sail in its own process: `pipeline` runs `python -m benchmarks.pipeline.sail`."""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from benchmarks.pipeline import spark as jobs
from benchmarks.pipeline.figures import Run
from celery_sqs_heartbeat.pipeline.engine.sail.session import new_session
from celery_sqs_heartbeat.pipeline.options import SAIL


def main(make: str, source: str, out: str) -> None:
    """Print the figures as JSON. This process is both the server and its only client."""
    spark = new_session("benchmark")
    turns: list[tuple[str, float, float]] = []

    def note_turn(name: str) -> None:
        turns.append((name, time.monotonic(), time.process_time()))

    getattr(jobs, make)(spark, Path(source), Path(out), note_turn, SAIL)
    note_turn("end")
    cpu = {name: seconds - turns[0][2] for name, _, seconds in turns}
    run = Run(
        wall={name: after[1] - began for (name, began, _), after in pairwise(turns)},
        cpu=cpu["end"],
        reading_cpu=cpu["workers"],
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
    json.dump(asdict(run), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
