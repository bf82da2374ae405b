"""Differences in older versions of Celery and kombu, which tests must expect."""

from __future__ import annotations

from kombu import VERSION

_KOMBU = VERSION[:2]

#: kombu 5.5 polls SQS with a blocking client on the worker's event loop. The loop learns of the
#: end of a prefork task, and starts the next, only between two polls
#: (github.com/celery/kombu/issues/2258).
POLLS_BLOCK = _KOMBU < (5, 6)
#: A message that is rejected without requeue is deleted if its queue has no dead-letter queue.
#: Before, it stayed in flight until its visibility timeout ended (kombu 5.7, docs of the SQS
#: transport).
REJECT_DELETES = _KOMBU >= (5, 7)
