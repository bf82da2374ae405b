"""What older versions of Celery and kombu do otherwise, for tests to expect it of them."""

from __future__ import annotations

from kombu import VERSION

_KOMBU = VERSION[:2]

#: What is rejected without requeue is deleted where the queue has no dead letters; before, it
#: stayed in flight until its visibility timeout ended (kombu 5.7, docs of the SQS transport).
REJECT_DELETES = _KOMBU >= (5, 7)
