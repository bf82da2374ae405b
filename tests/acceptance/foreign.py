"""Bodies of messages that no Celery app has sent, and what happens to each."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from tests.support.versions import REJECT_DELETES

#: Celery rejects it, or acks it as undecodable: kombu deletes it where there are no dead letters.
DELETED = "deleted"
#: It can't be delivered: it becomes visible again when its visibility timeout ends.
LEFT = "left"
RUNS = "runs"
REJECTED = DELETED if REJECT_DELETES else LEFT

TASK = "tests.acceptance.proj.work"


@dataclass(frozen=True)
class Foreign:
    """A message's body, and what happens to it on a queue without dead letters."""

    body: str
    becomes: str


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def envelope(
    content: str = '[["foreign"], {}, {}]', headers: Any = None, **more: Any
) -> dict[str, Any]:
    """Return kombu's own form of a message, for its content as text."""
    return {
        "body": encoded(content),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": TASK, "id": "foreign"} if headers is None else headers,
        "properties": {
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": "q"},
            "delivery_tag": "x",
        },
        **more,
    }


def task(**headers: Any) -> str:
    return json.dumps(envelope(headers={"task": TASK, "id": "foreign", **headers}))


VERSION_1 = json.dumps({"task": TASK, "id": "foreign", "args": ["foreign"], "kwargs": {}})
FOREIGN = {
    "text": Foreign("hello", REJECTED),
    "text in base64": Foreign(encoded("hello there!"), REJECTED),
    "JSON object": Foreign('{"order": 17}', REJECTED),
    "JSON list": Foreign("[1, 2]", REJECTED),
    "bare task, as a script would send it": Foreign(json.dumps(envelope()), RUNS),
    "task of protocol 1": Foreign(json.dumps(envelope(VERSION_1, {})), RUNS),
    "task of protocol 1 without a name": Foreign(json.dumps(envelope("{}", {})), REJECTED),
    "protocol 1, not JSON": Foreign(json.dumps(envelope("{", {})), DELETED),
    "protocol 2, not JSON": Foreign(json.dumps(envelope("{")), DELETED),
    "serializer not accepted": Foreign(
        json.dumps(envelope() | {"content-type": "application/x-python-serialize"}), REJECTED
    ),
    "unknown serializer": Foreign(json.dumps(envelope() | {"content-type": "a/b"}), REJECTED),
    "ETA that is none": Foreign(task(eta="soon"), REJECTED),
    "unknown body encoding": Foreign(
        json.dumps(envelope(properties={"body_encoding": "rot13", "delivery_info": {}})), LEFT
    ),
    "broken base64": Foreign(json.dumps(envelope(body="!!!a")), LEFT),
    "no body": Foreign(json.dumps(envelope(body=None)), LEFT),
    "headers that are text": Foreign(json.dumps(envelope(headers="none")), LEFT),
    "no task id": Foreign(json.dumps(envelope(headers={"task": TASK})), LEFT),
    "a list as task name": Foreign(task(task=["a"]), LEFT),
    "options that are none": Foreign(json.dumps(envelope('[["unread"], {}, 5]')), DELETED),
    "callbacks that are none": Foreign(
        json.dumps(envelope('[["foreign"], {}, {"callbacks": 5, "errbacks": 5}]')), RUNS
    ),
    "time limits that are none": Foreign(task(timelimit=[1]), LEFT),
    "stamps that are none": Foreign(task(stamped_headers=5), LEFT),
}
