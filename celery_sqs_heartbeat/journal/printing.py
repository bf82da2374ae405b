"""Makes readable text from a journal's lines."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from celery_sqs_heartbeat.common.escaping import escaped

_MICROSECONDS = 1_000_000
#: Fields that are printed in words, or that the worker's other lines show.
_HEAD = frozenset({"v", "ts", "mono", "seq", "ev", "wid", "queue", "msg", "dlv", "task", "task_id"})


def text_of(fields: dict[str, Any]) -> str:
    """Return one line of text: time in UTC, event, message, task and the other fields."""
    at = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(
        microseconds=fields["ts"]
    )
    line = "  ".join(
        part
        for part in (
            f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z",
            f"{fields['ev']:18}",
            _message(fields),
            ", ".join(_facts(fields)),
            f"worker {fields['wid']} #{fields['seq']}",
        )
        if part
    )
    return escaped(line)


def _message(fields: dict[str, Any]) -> str:
    if "msg" not in fields:
        return ""
    return (
        f"{fields['msg']} of {fields.get('queue', '-')}, "
        f"task {fields.get('task', '-')}[{fields.get('task_id', '-')}]"
    )


def _facts(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name in _HEAD:
            continue
        if name in ("sent", "first"):
            yield f"{name} {(fields['ts'] - value) / _MICROSECONDS:.3f} s before"
        elif name.endswith("_us"):
            yield f"{name.removesuffix('_us')} {value / _MICROSECONDS:.3f} s"
        elif isinstance(value, dict):
            yield f"{name} " + " ".join(f"{key}={each}" for key, each in value.items())
        else:
            yield f"{name} {value}"
