"""What the page says about `recovery`."""

from __future__ import annotations

ABOUT = """\
How many seconds a message stays hidden after something has failed: a stock Celery worker beside
one with `--heartbeat-sqs`, at the same time on the same server (ministack). All workers have a
prefork pool and no open poll. A killed worker dies with all processes of its
pool, but its keeper survives. A failing task raises an exception, with `acks_late` and
`acks_on_failure_or_timeout=False`, on a queue with a redrive policy. The connection is lost by
an error on the worker's event loop, as when it can't get credentials.

A stock worker's messages wait for the rest of their visibility timeout. Here that is nearly all
of it, because things fail soon after the receive."""
NOTES = (
    """\
The line of the stock worker continues: its visibility timeout must be longer than its longest
task. This package's can be short however long the tasks take.""",
    """\
After a lost connection, kombu 5.7 makes all messages of a stock worker visible, also that of
the task that still runs, which then runs twice. The worker never receives again until it is
restarted. This package releases only what has not started, and restores the event loop.""",
    """\
This does not show a whole machine that dies with its keeper, nor open long polls, into which
SQS may put a released message.""",
)
