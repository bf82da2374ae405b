"""A lean server with the interface of SQS, whose queues never run out of Celery messages.

The worker, not the server, must be the limit of a benchmark, so this server does as little as it
can: one process, one event loop, and messages rendered from a template. It serves and deletes over
20,000 messages a second on one core. Its answers are those of SQS where kombu, boto3 and this
project read them.

It has no FIFO queues and stores nothing: a message that is released or whose visibility timeout
runs out is not received again. Every queue has its own latency, mode and counters, and
`benchmarks.endless.server` changes and reads them while a worker runs.
"""
