"""The default and the meaning of each setting: the source of the table in the docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings.checks import SHORTEST_TOKEN
from celery_sqs_heartbeat.settings.release_policies import EXAMPLES
from celery_sqs_heartbeat.settings.rules import (
    DEFAULT_FIFO_BATCH,
    DEFAULT_FIFO_WAITING,
    DEFAULT_INTERVAL,
    DEFAULT_KEEPER_TIMEOUT,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting, in Markdown."""

    default: str
    meaning: str


_POLICIES = ", ".join(f'`"{example}"`' for example in EXAMPLES)

#: By name, without the prefix, in the order of the table.
REFERENCE: Mapping[str, Entry] = {
    "enabled": Entry(
        "`False`", "switches the heartbeat on without the flag; `--no-heartbeat-sqs` overrides it"
    ),
    "visibility_timeout": Entry(
        "the queue's own",
        f"whole seconds, 1 to {MAX_VISIBILITY_SECONDS}. The worker requests it with each receive "
        "and each extension",
    ),
    "threshold": Entry(
        "a third of the visibility timeout",
        "the keeper extends a lease when less than this is left",
    ),
    "interval": Entry(
        f"`{DEFAULT_INTERVAL:g}`, less if a threshold is small",
        "the longest sleep of the keeper's thread; it wakes earlier if anything is due",
    ),
    "max_lease": Entry(
        f"`{DEFAULT_MAX_LEASE_SECONDS:g}`",
        "the keeper stops extending a lease this long after the receive",
    ),
    "hold_eta": Entry(
        "the time of two extensions, at least a minute",
        "the worker holds a message whose task is due within this time. A message whose task is "
        "due later waits at SQS (except on FIFO queues), see [below](#tasks-that-are-due-later)",
    ),
    "release_delay": Entry(
        '`"backoff"`',
        "when a message becomes visible again after a failure: at once after the first receive, "
        "then after 2, 4, 8, ... up to 300 s, less up to half of that at random. Or a number, a "
        f"list by receive count (the last repeats), {_POLICIES}, a function, or its path "
        'as `"proj.delays:backoff"`: [each of them](howto/retries.md)',
    ),
    "on_lost": Entry(
        '`"warn"`',
        "what happens to a task whose lease is lost, has expired or is capped. "
        '`"warn"`: it continues, while another worker may run it, too; a task that has not started '
        'is dropped if its lease is lost. `"revoke"`: a task that has not started is dropped in '
        'all three cases. `"terminate"`: a running task is stopped, too',
    ),
    "fifo": Entry(
        '`"strict"`',
        "on FIFO queues: one message of a group at a time, in order; a failure stops its group; or "
        '`"parallel"`: all received messages run side by side. See [FIFO queues](howto/fifo.md)',
    ),
    "fifo_batch": Entry(
        f"`{DEFAULT_FIFO_BATCH}`",
        "how many messages one receive of a FIFO queue in strict order requests, 1 to 10. With "
        "more than one, those behind the first of a group "
        "[wait in the worker](howto/fifo.md#many-short-tasks)",
    ),
    "fifo_retry": Entry(
        '`"release"`',
        "what `self.retry()` does on a FIFO queue in strict order: the message becomes visible "
        "after the countdown, before the rest of its group; or "
        '`"send"`: a new message, as in Celery',
    ),
    "queues": Entry(
        "`{}`",
        "by queue name, a dict of any of the settings above except `enabled` and `interval`",
    ),
    "fifo_waiting": Entry(
        f"`{DEFAULT_FIFO_WAITING}`",
        "how many messages of FIFO queues a worker may hold that wait for another of their group, "
        "besides one of each group that arrived alone. Near this limit, receives request fewer",
    ),
    "flush_timeout": Entry(
        f"`{FLUSH_SECONDS:g}`",
        "how long a worker waits at its exit for SQS to confirm its last deletes and releases. It "
        "exits as soon as they are confirmed, and logs those that are not",
    ),
    "keeper_timeout": Entry(
        f"`{DEFAULT_KEEPER_TIMEOUT:g}`",
        "how many seconds a worker continues if no [keeper](operations.md#the-keepers-process) "
        "becomes ready. Then it settles its messages and exits with status 1",
    ),
    "journal": Entry(
        "`None`", "the folder or `s3://BUCKET/PREFIX` that the worker writes the journal to"
    ),
    "status": Entry("`None`", "`HOST:PORT` of the status page"),
    "status_token": Entry(
        "`None`",
        f"at least {SHORTEST_TOKEN} visible ASCII characters; needed if other machines can "
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
