"""The link between a worker and the process of its keeper, and what stands at both its ends.

A worker knows what it received and what became of it; its keeper knows what SQS has confirmed.
Each message on the link is one event on the worker's side (received, started, done, released,
dropped) or one on the keeper's (a lease is over, was lost; a line for the log). The worker never
waits for the link: it writes what the socket takes and keeps the rest.
"""
