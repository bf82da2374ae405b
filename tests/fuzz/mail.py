"""Received messages of any shape, mixed with good ones."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.shapes import json_values, optional


def encoded(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogatepass")).decode()


GOOD = json.dumps(
    {
        "body": encoded("[[], {}, {}]"),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "t", "id": "good"},
        "properties": {
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": "q"},
            "delivery_tag": "x",
        },
    }
)

envelopes = optional(
    body=st.text(max_size=8) | json_values,
    headers=optional(task=json_values, id=json_values) | json_values,
    properties=optional(
        body_encoding=st.just("base64") | json_values,
        delivery_info=json_values,
        delivery_tag=json_values,
        priority=json_values,
    )
    | json_values,
).map(json.dumps)
bodies = (
    st.one_of(envelopes, json_values.map(json.dumps), st.text(max_size=20)).flatmap(
        lambda text: st.sampled_from((text, encoded(text)))
    )
    | json_values
)
attributes = optional(ApproximateReceiveCount=st.just("2") | json_values) | json_values
#: `batch_of` adds their `MessageId` and `ReceiptHandle`.
messages = st.fixed_dictionaries(
    {},
    optional={"Body": bodies, "Attributes": attributes, "MD5OfBody": json_values},
)
missing = st.sets(st.sampled_from(("MessageId", "ReceiptHandle")), max_size=1)
wrong = optional(MessageId=json_values, ReceiptHandle=json_values)


def batch_of(parts: list[tuple[dict[str, Any], set[str], dict[str, Any]]], batch: int) -> list[Any]:
    """Return an answer's messages: each of the parts, followed by a good message."""
    made: list[Any] = []
    for number, (message, without, over) in enumerate(parts):
        bad, good = (
            {"MessageId": f"{kind}-{batch}-{number}", "ReceiptHandle": f"{kind}#{batch}-{number}"}
            for kind in ("bad", "good")
        )
        given = {**bad, **message, **over}
        made.append({key: value for key, value in given.items() if key not in without})
        made.append({**good, "Body": GOOD})
    return made
