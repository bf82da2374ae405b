"""What each setting is by default and what it means: the source of the table in the docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings.checks import SHORTEST_TOKEN
from celery_sqs_heartbeat.settings.policy_text import EXAMPLES
from celery_sqs_heartbeat.settings.rules import (
    DEFAULT_FIFO_BATCH,
    DEFAULT_FIFO_WAITING,
    DEFAULT_INTERVAL,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting, in Markdown."""

    default: str
    meaning: str


_POLICIES = ", ".join(f'`"{example}"`' for example in EXAMPLES)

#: By name, without the prefix, in the order they are shown in.
REFERENCE: Mapping[str, Entry] = {
    "enabled": Entry("`False`", "on without the flag; `--no-heartbeat-sqs` overrides it"),
    "visibility_timeout": Entry(
        "the queue's own",
        f"whole seconds, 1 to {MAX_VISIBILITY_SECONDS}; asked for with each receive and each "
        "extension",
    ),
    "threshold": Entry("a third of it", "extend when less than this is left"),
    "interval": Entry(
        f"`{DEFAULT_INTERVAL:g}`, less where a threshold is small",
        "the longest sleep of the keeper's thread; it wakes earlier for whatever is due",
    ),
    "max_lease": Entry(
        f"`{DEFAULT_MAX_LEASE_SECONDS:g}`", "stop extending this long after the receive"
    ),
    "hold_eta": Entry(
        "the time of two extensions, at least a minute",
        "a message whose task is due within so many seconds is held; one whose task is due later "
        "waits at SQS (except on FIFO queues), see [below](#tasks-that-are-due-later)",
    ),
    "release_delay": Entry(
        "`0`",
        "when a message is visible again after a failure: a number, a list by receive count (the "
        f"last repeats), {_POLICIES}, a function, or its path "
        'as `"proj.delays:backoff"`: [each of them](howto/retries.md)',
    ),
    "on_lost": Entry(
        '`"warn"`',
        'what becomes of a task whose lease is lost, has expired or is capped: `"warn"` (it goes '
        "on, while another worker may run it, too; one that has not started is dropped if its "
        'lease is lost); `"revoke"` (not started after any of the three); `"terminate"` (stopped, '
        "too)",
    ),
    "ack": Entry('`"batched"`', 'or `"inline"`: kombu\'s own blocking delete'),
    "fifo": Entry(
        '`"strict"`',
        "on FIFO queues: one message of a group at a time, in order; a failure stops its group; or "
        '`"parallel"`: all that are received run side by side. See [FIFO queues](howto/fifo.md)',
    ),
    "fifo_batch": Entry(
        f"`{DEFAULT_FIFO_BATCH}`",
        "how many messages one receive of a FIFO queue in strict order asks for, 1 to 10. Of more, "
        "those behind the first of a group [wait in the worker](howto/fifo.md#many-short-tasks)",
    ),
    "fifo_retry": Entry(
        '`"release"`',
        "what `self.retry()` does on a FIFO queue in strict order: its message comes back after "
        'the countdown, before the rest of its group; or `"send"`: a new message, as in Celery',
    ),
    "queues": Entry(
        "`{}`", "by queue name, a dict of any of those above but `enabled` and `interval`"
    ),
    "fifo_waiting": Entry(
        f"`{DEFAULT_FIFO_WAITING}`",
        "how many messages of FIFO queues a worker may hold that wait for another of their group, "
        "beside one of each group that came alone; near it, receives ask for fewer",
    ),
    "flush_timeout": Entry(
        f"`{FLUSH_SECONDS:g}`",
        "how long a worker that ends waits for SQS to confirm its last deletes and releases; it "
        "ends at once when they are confirmed, and logs those that are not",
    ),
    "journal": Entry("`None`", "folder or `s3://BUCKET/PREFIX` to write the journal to"),
    "status": Entry("`None`", "`HOST:PORT` of the status page"),
    "status_token": Entry(
        "`None`",
        f"at least {SHORTEST_TOKEN} visible ASCII characters; needed where other machines can "
        "reach the status page",
    ),
    "session": Entry(
        "`None`",
        "`module:function` of a function without arguments that returns a `boto3.Session`, as "
        '`"proj.aws:new_session"`: for credentials that only code can get. The keeper\'s process '
        "imports that module",
    ),
    "otel": Entry("`False`", "count and trace by OpenTelemetry; needs the extra `otel`"),
}
