"""The link between a worker and the process of its keeper, and the code at both its ends.

The keeper knows what SQS has returned and confirmed. The worker knows how its tasks ended. On the
link, the worker says from which queues to receive, and that a message was started, done, released
or dropped. The keeper reports that a lease has ended or was lost, or sends a line for the log.
Messages for tasks, and the room for them, go over a second socket (`deliveries`). Neither side
waits for the other: it writes as much as the socket takes and keeps the rest.
"""
