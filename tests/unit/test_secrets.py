"""The `repr` of the package's value classes contains no secrets.

A receipt handle is a credential, and so are the broker's keys. Logs, debuggers and error trackers
that capture the local variables of a traceback record the `repr` of values.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from celery import Celery

import celery_sqs_heartbeat
from celery_sqs_heartbeat.cli.app import Broker
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.transport.binding import Heartbeat

SECRET = "a-planted-secret"
PACKAGE = Path(celery_sqs_heartbeat.__file__).parent

#: Fields that hold no secret, whatever their type allows. One that is neither here nor below is
#: taken for one that does: a new one has to hide, or be named.
PLAIN = frozenset(
    re.findall(
        r"\w+",
        "account acks_on_failure arn boot bucket buckets cause content_type "
        "created_timeout creation_faults dead_letters deduplication_id endpoint_url events "
        "fault faults fifo fifo_retry fix group group_id help host id journal kind known "
        "labels lease_url meaning message_id name node on_lost option_faults own_transport "
        "pool prefix queue queue_url reason region release_delay sequence_number setting "
        "sqs_name status task task_id title transport type unit url value versions why wid",
    )
)
#: The same for ambiguous names.
PLAIN_OF_CLASS = {
    # SQS's answers to requests for URLs and attributes.
    ("Answer", "payload"),
    ("QueueFacts", "attributes"),
    # The status page shows this to everyone who has its token.
    ("Page", "payload"),
    # A message's id.
    ("_Wanted", "message"),
    # By the names of tasks, and names of attributes.
    *(("ConsumedQueue", name) for name in ("task_terms", "attributes")),
    # A metric's name, and an attribute's.
    ("Measurement", "metric"),
    ("Field", "attribute"),
    # The doctor's texts, and names of parameters.
    *(("Rule", name) for name in ("finding", "facts", "check")),
    # The output of commands.
    *(("Styled", name) for name in ("text", "color")),
    # An option's or a setting's name.
    ("Page", "origin"),
    ("Response", "body"),
    # The contents of task_routes.
    *(("AppFacts", name) for name in ("groups", "deduplicated_routes")),
    # An object whose repr is its address.
    ("BrokerFacts", "sqs"),
    # Our settings by name, without the token.
    ("WorkerInfo", "settings"),
    # The path of a function, and the writer of a journal.
    ("Settings", "session"),
    ("Hello", "session"),
    ("Hello", "identity"),
}
#: Types that hold no text from strangers.
SAFE_TYPE = re.compile(
    r"(?:int|float|bool|None|Action|CallKind|Outcome|Goal|LeaseStatus|EventKind|Mark|Severity|Tried|Place"
    r"|datetime\.date|Literal\[[^\]]*\]|type\[\w+\]|\||\s)*"
)


#: Modules that read journals, which contain no secrets, and need Spark.
READERS = "celery_sqs_heartbeat.pipeline"


def value_classes() -> Iterator[type]:
    """Return every dataclass and named tuple of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        defined = [
            node.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef) and is_value_class(node)
        ]
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if defined and not name.startswith(READERS):
            module = importlib.import_module(name)
            yield from (getattr(module, each) for each in defined)


def is_value_class(node: ast.ClassDef) -> bool:
    marks = (*node.bases, *node.decorator_list)
    named = {part.id for mark in marks for part in ast.walk(mark) if isinstance(part, ast.Name)}
    named |= {
        part.attr for mark in marks for part in ast.walk(mark) if isinstance(part, ast.Attribute)
    }
    return bool(named & {"dataclass", "NamedTuple"})


CLASSES = list(value_classes())


def fields_of(cls: type) -> dict[str, str]:
    """Return the types of a class's fields, as written in the source."""
    if dataclasses.is_dataclass(cls):
        return {each.name: str(each.type) for each in dataclasses.fields(cls)}
    kinds = cls.__annotations__
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in kinds.items()}


def planted(cls: type, depth: int = 0) -> Any:
    """Return an instance with a secret in each field that may hold one."""
    values = {name: value_of(cls, name, kind, depth) for name, kind in fields_of(cls).items()}
    if issubclass(cls, tuple):
        return cls(**values)
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def value_of(owner: type, name: str, kind: str, depth: int) -> Any:
    near = sorted(CLASSES, key=lambda cls: cls.__module__ != owner.__module__)
    if name in PLAIN or (owner.__name__, name) in PLAIN_OF_CLASS or SAFE_TYPE.fullmatch(kind):
        return None
    for cls in near:
        if re.search(rf"\b{cls.__name__}\b", kind):
            # Deep enough for the lease of a call's entry. A lease contains a call again.
            return (planted(cls, depth + 1),) if depth < 4 else None
    return {"a": [SECRET]} if re.match(r"Mapping|dict", kind) else [SECRET]


def test_the_classes_that_hold_secrets_are_among_them() -> None:
    names = {cls.__name__ for cls in CLASSES}
    assert names >= {"Lease", "Entry", "Call", "Event", "BrokerConfig", "Settings"}
    # It is no value: it shows nothing but its address.
    assert Heartbeat.__repr__ is object.__repr__


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_value_does_not_show_its_secrets(cls: type) -> None:
    assert SECRET not in repr(planted(cls)), "hide it by field(repr=False), or add it to PLAIN"


def test_an_error_that_quotes_a_handle_is_logged_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refusing:
        def delete_message_batch(self, **request: Any) -> None:
            text = (
                f'The input receipt handle "{request["Entries"][0]["ReceiptHandle"]}" is invalid.'
            )
            raise ClientError({"Error": {"Code": "ReceiptHandleIsInvalid", "Message": text}}, "D")

    caplog.set_level(logging.DEBUG, "celery_sqs_heartbeat")
    lease = Lease(queue_url="q", message_id="m", terms=LeaseTerms.of(30), held_since=0.0)
    BotoSqs(Refusing()).send(
        Call(CallKind.DELETE, "q", (Entry(lease, SECRET, Action.DELETE),), 0.0)
    )
    assert "ReceiptHandleIsInvalid" in caplog.text
    assert SECRET not in caplog.text


def test_the_brokers_keys_are_not_shown() -> None:
    app = Celery(broker=f"sqs://AKIA{SECRET}:{SECRET}@")
    app.conf.broker_transport_options = {
        "region": "eu-west-1",
        "client-config": {"proxies": {"https": f"http://user:{SECRET}@proxy"}},
        "predefined_queues": {
            "q": {"url": "https://sqs/1/q", "access_key_id": SECRET, "secret_access_key": SECRET}
        },
        "sts_role_arn": f"arn:aws:iam::1:role/{SECRET}",
    }
    shown = repr(Broker(app).config)
    assert SECRET not in shown
    assert "region='eu-west-1'" in shown
