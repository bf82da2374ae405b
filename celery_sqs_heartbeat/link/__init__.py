"""The link between a worker and the process of its keeper, and the code at both its ends.

The worker knows which messages it received and how their tasks ended. The keeper knows what SQS
has confirmed. Each message on the link reports one event. The worker reports that a message was
received, started, done, released or dropped. The keeper reports that a lease has ended or was
lost, or sends a line for the log. The worker never waits for the link: it writes as much as the
socket takes and keeps the rest.
"""
