"""Answers SQS's operations, and the changes that a benchmark asks for."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from benchmarks.endless.queue import Queue, Receive
from benchmarks.endless.template import Message, Template

Body = dict[str, Any]
#: Sends a status, the text of a JSON answer, and says after how many seconds.
Send = Callable[[int, str, float], None]

_NOT_IN_FLIGHT = {
    "SenderFault": True,
    "Code": "MessageNotInflight",
    "Message": "The message is not in flight.",
}


class Account:
    """All queues of the server, by name.

    Args:
        url: The server's endpoint, without a path.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._queues: dict[str, Queue] = {}

    def answer(self, operation: str, body: Body, send: Send) -> Receive | None:
        """Answer a call. Return what waits for messages, if it is a receive that does."""
        if operation in ("ListQueues", "CreateQueue", "GetQueueUrl"):
            send(200, json.dumps(self._without_queue(operation, body)), 0.0)
            return None
        queue = self._queues.get(body.get("QueueUrl", "").rpartition("/")[2])
        if queue is None:
            send(400, _error("QueueDoesNotExist", "The specified queue does not exist."), 0.0)
            return None
        queue.calls[operation] += 1
        if operation == "ReceiveMessage":
            return _receive(queue, body, send)
        answered = _OPERATIONS.get(operation)
        if answered is None:
            send(400, _error("UnknownOperationException", f"no {operation} here"), queue.latency)
        else:
            send(200, json.dumps(answered(queue, body)), queue.latency)
        return None

    def change(self, body: Body) -> Body:
        """Change a queue as a benchmark asks for it, and return the queue's counts.

        Args:
            body: `queue` is its name. `latency`, `template` and `confirms_all` change it, and
                `is_endless`, `count` and `every` its source of messages. `events` adds the times of
                all receives and deletes, `forget` removes counts and times before they are read
                again.
        """
        queue = self._queues.setdefault(body["queue"], Queue())
        queue.latency = body.get("latency", queue.latency)
        queue.confirms_all = body.get("confirms_all", queue.confirms_all)
        if "template" in body:
            queue.template = Template(**body["template"])
        if source := body.get("source"):
            queue.set_source(**source)
        counts = queue.counts()
        if body.get("events"):
            counts |= {"receives": queue.receives, "deletes": queue.deletes}
        if body.get("forget"):
            queue.calls.clear()
            queue.receives, queue.deletes = [], []
        return counts

    def _without_queue(self, operation: str, body: Body) -> Body:
        if operation == "ListQueues":
            prefix = body.get("QueueNamePrefix") or ""
            names = [name for name in self._queues if name.startswith(prefix)]
            return {"QueueUrls": [self._url_of(name) for name in names]}
        self._queues.setdefault(body["QueueName"], Queue())
        return {"QueueUrl": self._url_of(body["QueueName"])}

    def _url_of(self, name: str) -> str:
        return f"{self._url}/000000000000/{name}"


def _receive(queue: Queue, body: Body, send: Send) -> Receive:
    names = (*body.get("AttributeNames", ()), *body.get("MessageSystemAttributeNames", ()))
    attributes = _attributes(names)

    def reply(messages: Sequence[Message]) -> None:
        now = int(time.time() * 1000)
        texts = [f"{each.text}{attributes(each.sent_ms, now)}}}" for each in messages]
        text = f'{{"Messages":[{",".join(texts)}]}}' if texts else "{}"
        send(200, text, queue.latency)

    receive = Receive(body.get("MaxNumberOfMessages", 1), reply)
    queue.receive(receive, body.get("WaitTimeSeconds", 0))
    return receive


@cache
def _attributes(names: tuple[str, ...]) -> Callable[[int, int], str]:
    """Return what renders the requested attributes of a message that was never received before."""

    def render(sent_ms: int, now_ms: int) -> str:
        known: Mapping[str, object] = {
            "ApproximateReceiveCount": 1,
            "SentTimestamp": sent_ms,
            "ApproximateFirstReceiveTimestamp": now_ms,
        }
        shown = [
            f'"{name}":"{value}"'
            for name, value in known.items()
            if name in names or "All" in names
        ]
        return f',"Attributes":{{{",".join(shown)}}}' if shown else ""

    return render


def _delete(queue: Queue, body: Body) -> Body:
    queue.delete([body["ReceiptHandle"]])
    return {}


def _delete_batch(queue: Queue, body: Body) -> Body:
    entries = body["Entries"]
    queue.delete([entry["ReceiptHandle"] for entry in entries])
    return {"Successful": [{"Id": entry["Id"]} for entry in entries], "Failed": []}


def _change(queue: Queue, body: Body) -> Body:
    queue.change(body["ReceiptHandle"], body["VisibilityTimeout"])
    return {}


def _change_batch(queue: Queue, body: Body) -> Body:
    done, failed = [], []
    for entry in body["Entries"]:
        if queue.change(entry["ReceiptHandle"], entry["VisibilityTimeout"]):
            done.append({"Id": entry["Id"]})
        else:
            failed.append({"Id": entry["Id"], **_NOT_IN_FLIGHT})
    return {"Successful": done, "Failed": failed}


def _send(queue: Queue, body: Body) -> Body:
    """Add a message of the queue's template: what was sent is not stored."""
    queue.add()
    digest = hashlib.md5(body["MessageBody"].encode()).hexdigest()
    return {"MessageId": digest, "MD5OfMessageBody": digest}


def _queue_attributes(queue: Queue, body: Body) -> Body:
    name = body["QueueUrl"].rpartition("/")[2]
    known = {
        "ApproximateNumberOfMessages": str(queue.size),
        "ApproximateNumberOfMessagesNotVisible": str(queue.in_flight),
        "QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}",
        "VisibilityTimeout": "30",
    }
    names = body.get("AttributeNames", ())
    return {
        "Attributes": {
            name: value for name, value in known.items() if name in names or "All" in names
        }
    }


_OPERATIONS: Mapping[str, Callable[[Queue, Body], Body]] = {
    "ChangeMessageVisibility": _change,
    "ChangeMessageVisibilityBatch": _change_batch,
    "DeleteMessage": _delete,
    "DeleteMessageBatch": _delete_batch,
    "GetQueueAttributes": _queue_attributes,
    "SendMessage": _send,
}


def _error(name: str, text: str) -> str:
    return json.dumps({"__type": f"com.amazonaws.sqs#{name}", "message": text})
