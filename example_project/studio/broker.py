"""Which queue both sites use, from the environment."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

#: `sqs://` is AWS with the credentials of the machine. The simulated server is
#: `sqs://any:thing@127.0.0.1:9324`.
URL = os.environ.get("CELERY_BROKER_URL", "sqs://")
QUEUE = os.environ.get("STUDIO_QUEUE", "studio")


def transport_options() -> dict[str, Any]:
    """Return kombu's `broker_transport_options`."""
    # Plain HTTP never leaves the machine.
    options: dict[str, Any] = {"is_secure": urlsplit(URL).hostname != "127.0.0.1"}
    if queue_url := os.environ.get("STUDIO_QUEUE_URL"):
        # kombu then asks neither for a list of queues nor to create one.
        options["predefined_queues"] = {QUEUE: {"url": queue_url}}
    return options
