"""Prints how many bytes a book needs for each lease, after each was extended.

python -m benchmarks.scale.memory LEASES
"""

from __future__ import annotations

import gc
import sys
import tracemalloc

from benchmarks.scale.adapters import TERMS
from benchmarks.scale.kept import CYCLE
from benchmarks.scale.messages import QUEUE, TASK, messages
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import MAX_CALLS, Outcome
from celery_sqs_heartbeat.leases.message import receive_count_of, time_of
from celery_sqs_heartbeat.leases.received_as import Receive


def bytes_per_lease(leases: int) -> float:
    """Return the bytes of a book for each lease, without the texts that SQS returned."""
    given = list(messages(leases))
    book = LeaseBook(lambda: 0.5)
    tracemalloc.start(1)
    for index, (message, task_id) in enumerate(given):
        sent_at = CYCLE * (index + 1) / leases
        receive = Receive(
            queue_url=QUEUE,
            message_id=str(message["MessageId"]),
            receipt_handle=str(message["ReceiptHandle"]),
            receive_count=receive_count_of(message),
            sent_time=time_of(message, "SentTimestamp"),
            first_received_time=time_of(message, "ApproximateFirstReceiveTimestamp"),
            hidden_for=TERMS.visibility_timeout,
            sent_at=sent_at,
            arrived_at=sent_at,
            task=TASK,
            task_id=task_id,
        )
        book.receive(receive, terms=TERMS)
        book.take_events()
    _extend_all(book)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / leases


def _extend_all(book: LeaseBook) -> None:
    now = CYCLE
    while (now := max(now, book.agenda.next_due(now, MAX_CALLS))) < 2 * CYCLE:
        for call in book.plan(now, MAX_CALLS):
            book.apply_results(call, [Outcome.DONE] * len(call.entries), now)
        book.take_events()


if __name__ == "__main__":
    print(bytes_per_lease(int(sys.argv[1])))
