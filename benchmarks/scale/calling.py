"""Prints the CPU of a batch call in ms: by a keeper and by boto3, in turns.

python -m benchmarks.scale.calling URL CALLS ROUNDS
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.scale.adapters import TERMS, sqs_at
from benchmarks.scale.messages import QUEUE, messages
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import SQS, Action, Lease
from celery_sqs_heartbeat.sqs.adapter import BotoSqs


def full_call() -> Call:
    """Return a call that extends ten leases."""
    entries = [
        Entry(
            Lease(queue_url=QUEUE, message_id=message["MessageId"], terms=TERMS, held_since=0.0),
            message["ReceiptHandle"],
            Action.EXTEND,
            TERMS.visibility_timeout,
        )
        for message, _ in messages(SQS.most_entries)
    ]
    return Call(CallKind.CHANGE_VISIBILITY, QUEUE, tuple(entries), 0.0)


def cpu_ms(sqs: BotoSqs, call: Call, calls: int) -> float:
    """Make a call several times, and return the CPU of one in milliseconds."""
    begun = time.process_time()
    for _ in range(calls):
        assert set(sqs.send(call)) == {Outcome.DONE}
    return 1000 * (time.process_time() - begun) / calls


def compare(url: str, calls: int, rounds: int) -> list[tuple[float, float]]:
    """Return for each round the CPU of a call as a keeper makes it, and by boto3."""
    ours, by_boto3 = sqs_at(url), sqs_at(url, by_boto3=True)
    call = full_call()
    for sqs in (ours, by_boto3):
        cpu_ms(sqs, call, calls)
    return [(cpu_ms(ours, call, calls), cpu_ms(by_boto3, call, calls)) for _ in range(rounds)]


if __name__ == "__main__":
    _url, _calls, _rounds = sys.argv[1:]
    print(json.dumps(compare(_url, int(_calls), int(_rounds))))
