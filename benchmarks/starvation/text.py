"""What the page says about `starvation`."""

from __future__ import annotations

ABOUT = """\
What happens to messages while a task keeps Python's lock (the GIL) for three visibility timeouts,
as one call of a C library may. It is the sleep of the C library, called without releasing the
lock. A worker with `--heartbeat-sqs` runs beside a stock worker with the usual home-made remedy:
each task starts a thread that extends its message with boto3, here when two thirds of the timeout
are left. Each worker runs four tasks, in a solo pool one. In half of the cases all of them wait,
which releases the lock. In the others one keeps it. Another consumer receives what becomes
visible. A message that it receives is a duplicate: its task still runs, or is about to be acked."""
NOTES = (
    """\
A thread needs Python's lock to make a call. While a task keeps the lock, no message of its
process is extended. In a prefork pool that is the task's own message. In the other pools all
messages of the worker share its process, and those of tasks that behave are lost, too. This
package extends from a process of its own, whose lock no task has.""",
    """\
C calls that keep the lock for long are, for example, a regular expression that backtracks,
`json.loads` of a large document, a sort of a long list, and extensions that never release it. In
gevent pools the thread is a greenlet, so a loop in plain Python is enough.""",
    """\
If tasks only wait, the remedy works, at one call for each extension. This does not show messages
that wait in the worker for a free process: no thread extends them before their tasks start. Nor
does it show its other gaps, such as messages whose delete fails. A CPU that is busy with other
work is no part of this: the blocked call uses none.""",
)
