"""What older versions of Celery and kombu do otherwise, for tests to expect it of them."""

from __future__ import annotations

from kombu import VERSION

_KOMBU = VERSION[:2]

#: kombu 5.5 polls SQS with a blocking client on the worker's event loop. The loop learns of the
#: end of a prefork task, and starts the next, only between two polls
#: (github.com/celery/kombu/issues/2258).
POLLS_BLOCK = _KOMBU < (5, 6)
#: What is rejected without requeue is deleted where the queue has no dead letters; before, it
#: stayed in flight until its visibility timeout ended (kombu 5.7, docs of the SQS transport).
REJECT_DELETES = _KOMBU >= (5, 7)
