"""Measures the cost of a line of the journal: for its caller, the thread and the disk.

The times of the caller and of the thread are measured while nothing is written. Rounds are
short, and the best one counts. Sizes are those of typical tasks: received, started, extended
a few times, deleted.

    python -m benchmarks.journal
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import timeit
import uuid
from collections.abc import Iterator
from pathlib import Path

from celery_sqs_heartbeat.journal import journal as journals
from celery_sqs_heartbeat.journal.fields import Origin, fields_of, line_of
from celery_sqs_heartbeat.journal.reading import closed_segments
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action

TASKS = ("shop.tasks.send_invoice", "shop.tasks.resize_image", "reports.tasks.nightly")
URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/shop-production"


def events_of(tasks: int) -> Iterator[Event]:
    """Return a keeper's events of that many tasks."""
    chance = random.Random(1)
    for number in range(tasks):
        at = number * 0.3
        known = {
            "queue_url": URL,
            "message_id": str(uuid.UUID(int=chance.getrandbits(128))),
            "task": chance.choice(TASKS),
            "task_id": str(uuid.UUID(int=chance.getrandbits(128))),
            "receive_count": 1,
            "receipt_handle": f"{chance.getrandbits(1024):x}",
            "visibility_timeout": 30,
        }
        yield Event(
            kind=EventKind.MESSAGE_RECEIVED,
            at=at,
            slack=30 - chance.random(),
            held_for=chance.random(),
            cause="new",
            sent_time=1.7e9 + at,
            first_received_time=1.7e9 + at + 0.04,
            **known,
        )
        yield Event(kind=EventKind.TASK_STARTED, at=at + 0.1, slack=29.5, held_for=0.5, **known)
        extensions = chance.choice((0, 0, 1, 3))
        for turn in range(1, extensions + 2):
            is_last = turn > extensions
            yield Event(
                kind=EventKind.MESSAGE_DELETED if is_last else EventKind.LEASE_EXTENDED,
                at=at + 20 * turn,
                slack=10 + chance.random(),
                held_for=20 * turn + chance.random(),
                ended_for=chance.random() / 10 if is_last else None,
                action=Action.DELETE if is_last else Action.EXTEND,
                outcome=Outcome.DONE,
                call_number=number + turn,
                batch=chance.randrange(1, 11),
                seconds=chance.random() / 50,
                **known,
            )


def caller_seconds(event: Event, calls: int, rounds: int) -> float:
    """Return the shortest time of `journal(event)`."""
    with tempfile.TemporaryDirectory() as folder:
        # It is not started, so nothing else runs.
        journal = journals.Journal(folder)
        journals.QUEUE_LIMIT = calls * rounds + 1
        return min(timeit.repeat(lambda: journal(event), number=calls, repeat=rounds)) / calls


def line_seconds(events: list[Event], rounds: int) -> float:
    """Return the journal thread's shortest time for a line, without the disk."""
    origin = Origin(wid="0123456789ab", started_at=0.0, offset=0)

    def encode() -> None:
        for event in events:
            line_of(fields_of(event, 1, origin))

    return min(timeit.repeat(encode, number=1, repeat=rounds)) / len(events)


def sizes(events: list[Event]) -> tuple[float, float]:
    """Return the bytes of a line, plain and compressed."""
    with tempfile.TemporaryDirectory() as folder:
        journal = journals.Journal(folder)
        journals.QUEUE_LIMIT = len(events)
        origin = Origin(wid="0123456789ab", started_at=0.0, offset=1_700_000_000_000_000)
        plain = sum(len(line_of(fields_of(each, n, origin))) for n, each in enumerate(events))
        for event in events:
            journal(event)
        journal.step()
        journal._writer.close()
        packed = sum(path.stat().st_size for path in closed_segments(Path(folder)))
    return plain / len(events), packed / len(events)


def main() -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200, help="calls per round")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=10_000)
    options = parser.parse_args()
    events = list(events_of(options.tasks))
    caller = caller_seconds(events[0], options.calls, options.rounds)
    line = line_seconds(events[: options.calls], options.rounds)
    plain, packed = sizes(events)
    print(f"{'journal(event), on its caller':40}{caller * 1e6:8.2f} us")
    print(f"{'its line, on the thread':40}{line * 1e6:8.2f} us")
    print(f"{'its line, plain':40}{plain:8.1f} bytes")
    print(f"{'its line, compressed':40}{packed:8.1f} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
