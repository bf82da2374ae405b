"""Whose code a sampled thread runs."""

from __future__ import annotations

from benchmarks.throughput.profile import shares_of

LOOP = "asynloop (celery/worker/loops.py:130)"
OURS = "Feed.deliver (celery_sqs_heartbeat/transport/feed.py:136)"


def test_python_s_own_code_counts_for_its_caller() -> None:
    shares = shares_of(
        [
            f"main (celery/bin/celery.py:1);{LOOP};{OURS};dumps (json/__init__.py:231) 3",
            f"{LOOP};{OURS};sign (botocore/auth.py:435) 1",
        ]
    )
    assert shares == {"this package": 0.75, "botocore: signs polls, and parses answers": 0.25}


def test_other_threads_do_not_count() -> None:
    shares = shares_of([f"run (threading.py:982);{OURS} 8", f"{LOOP} 2"])
    assert shares == {"Celery: makes requests, and follows tasks": 1.0}
