"""What the page says about `recovery`."""

from __future__ import annotations

ABOUT = """\
How many seconds a message stays hidden after something has failed: a stock Celery worker beside
one with `--heartbeat-sqs`, at the same time on the same server (ministack on this machine). All
workers have a prefork pool and hold as many messages as they may, so none has an open poll. Ours
extend each second (`sqs_heartbeat_threshold`), so that a scenario can begin soon after its task. A
killed worker dies with all processes of its pool. Its keeper is a separate process and survives.
A failing task raises an exception, with `acks_late` and `acks_on_failure_or_timeout=False`, on a
queue with a redrive policy. The connection is lost by an error on the worker's event loop, as
when it can't get credentials. Another consumer polls the queue after a kill, a shutdown and a
lost connection.

A stock worker's messages wait for the rest of their visibility timeout. Here nearly all of it is
left, because things fail soon after the receive. At a random moment, half of it is left on
average."""
NOTES = (
    """\
The line of the stock worker continues. It needs a visibility timeout longer than its longest
task. With one of an hour, the messages of a killed worker stay hidden for up to an hour. This
package extends, so its timeout can be short however long the tasks take.""",
    """\
After a lost connection, kombu 5.7 makes all messages of a stock worker visible, also that of the
task that still runs: it then runs twice. It also leaves the worker without an event loop, so it
never receives again until it is restarted. This package releases only what has not started, and
restores the loop.""",
    """\
A killed keeper delays nothing: its worker starts another, which resumes the leases. An extension
is due each second, so up to a second of the figure is the wait for the next one. The
rest is the start of a Python process.""",
    """\
This does not show a whole machine that dies with its keeper: then messages wait for their
visibility timeout, with any worker. Nor does it show a worker with an open long poll. SQS may
put a released message into that poll. The keeper then releases it again.""",
)
