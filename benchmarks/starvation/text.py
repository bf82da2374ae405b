"""What the page says about `starvation`."""

from __future__ import annotations

ABOUT = """\
What happens to messages while a task keeps Python's lock (the GIL) for three visibility
timeouts, as one call of a C library may. A worker with `--heartbeat-sqs` runs beside a stock
worker with the usual home-made remedy: each task starts a thread that extends its message with
boto3. Each worker runs four tasks, in a solo pool one. Another consumer receives what becomes
visible. That is a duplicate: the task still runs, or is about to be acked."""
NOTES = (
    """\
A thread needs Python's lock to make a call. While a task keeps the lock, no message of its
process is extended: in a prefork pool the task's own, in the other pools all messages of the
worker. This package extends from a process of its own, whose lock no task has.""",
    """\
C calls that keep the lock for long are, for example, a regular expression that backtracks,
`json.loads` of a large document, a sort of a long list, and extensions that never release it.
In gevent pools the thread is a greenlet, so a loop in plain Python is enough.""",
    """\
If tasks only wait, the remedy works, at one call for each extension, except for messages that
wait in the worker for a free process, or whose delete fails.""",
)
