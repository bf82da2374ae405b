"""Bodies of messages as no Celery app sends them, and the task that most of them name.

A worker of `proj` loads the task by the setting `imports`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from celery import Task

from tests.acceptance.proj import app, note

MODULE = __name__
TASK = f"{MODULE}.run"
#: Values of a wrong type, for any place. JSON may also have numbers that no clock can count.
ODD: tuple[Any, ...] = ("x", [1, 2, 3], {"a": {}}, float("nan"))
#: Where Celery or kombu expects a certain type: headers and properties of protocol 2, the options
#: beside its arguments, and the fields of protocol 1.
HEADERS = (
    *("task", "id", "shadow", "eta", "expires", "retries", "timelimit", "group", "group_index"),
    *("root_id", "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "stamps"),
    *("stamped_headers", "replaced_task_nesting", "compression", "lang"),
)
PROPERTIES = ("body_encoding", "delivery_info", "delivery_tag", "priority", "reply_to")
OPTIONS = ("callbacks", "errbacks", "chain", "chord")
FIELDS = ("task", "id", "args", "kwargs", "eta", "expires", "retries", "timelimit", "utc")
#: Pairs of time limits, which a pool's clock reads when the task has begun.
LIMITS = (
    *([1], ["x", "y"], "ab", [[], {}], [-1, -1], [float("nan")] * 2, [None, float("inf")]),
    *([10**400, None], [None, 10**400], [{}, None], [True, True], [None, "1"]),
)
CONTENTS = (
    *("", "{", "null", "5", '"x"', "[]", "[[]]", "[[],{}]", "[5,{},{}]", "[[],5,{}]", "[[],{},5]"),
    *("[{},[],[]]", "[[], {}, {}, {}]", "\ud800", "[[NaN], {}, {}]"),
)
EVENTS = {
    "S3 event": {"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": "a"}}}]},
    "S3 test event": {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"},
    "SNS event": {"Type": "Notification", "MessageId": "1", "Message": '{"task": "x"}'},
}


@app.task(bind=True)
def run(self: Task[Any, Any], *_: Any, **__: Any) -> None:
    note("run", self.request.properties["delivery_info"]["sqs_message"]["MessageId"])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogatepass")).decode()


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


def malformed() -> Iterator[str]:
    """Yield bodies with something wrong in each place. Some of it does no harm: its task runs."""
    yield from ("hello", encoded("hello there!"), "!!!a", "null", "[1, 2]", '"x"', "NaN", "\x7f")
    yield from ("[" * 100_000, '{"a":' * 50_000, "x" * 1_048_576)
    for event in EVENTS.values():
        yield from (json.dumps(event), encoded(json.dumps(event)))
    for content in CONTENTS:
        yield json.dumps(envelope(content))
        yield json.dumps(envelope(content, {}))
    for limits in LIMITS:
        yield task(timelimit=limits)
    for depth in (500, 900, 20_000):
        nested = "[" * depth + "]" * depth
        yield json.dumps(envelope(f"[[{nested}], {{}}, {{}}]"))
        yield task(shadow=None).replace("null", nested)
    for compression in ("application/x-gzip", "application/x-bz2", "zstd", "none of them"):
        yield task(compression=compression)
    for place in ("body", "content-type", "content-encoding", "headers", "properties"):
        for odd in (None, *ODD):
            yield json.dumps(envelope() | {place: odd})
    for encoding in ("utf-16", "binary", "rot13", "punycode"):
        yield json.dumps(envelope() | {"content-encoding": encoding})
    for kind in ("application/x-python-serialize", "application/x-yaml", "application/data"):
        yield json.dumps(envelope() | {"content-type": kind})
    for odd in ODD:
        for name in HEADERS:
            yield task(**{name: odd})
        for name in PROPERTIES:
            body = envelope()
            body["properties"][name] = odd
            yield json.dumps(body)
        for name in OPTIONS:
            yield json.dumps(envelope(json.dumps([["foreign"], {}, {name: odd}])))
        for name in FIELDS:
            fields = {"task": TASK, "id": "foreign", "args": ["foreign"], "kwargs": {}, name: odd}
            yield json.dumps(envelope(json.dumps(fields), {}))
