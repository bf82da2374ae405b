"""Private names of kombu's SQS channel and transport that we override and use."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

_SQS = "kombu.transport.SQS"
_CHANNEL = f"{_SQS}:Channel"
_OURS = "celery_sqs_heartbeat.transport:Channel"
_FOR_SUBCLASSES = "none: subclasses of kombu's virtual channel are meant to override it"

PRIVATE: tuple[Need, ...] = (
    *internals(
        _CHANNEL,
        (
            "_get_async",
            "receives messages on the event loop, and leases them",
            "none: kombu has no hook between the answer to a poll and the delivery of its messages",
        ),
        (
            "_get_bulk",
            "receives messages without an event loop, and leases them",
            "none: kombu has no hook between the answer to a poll and the delivery of its messages",
        ),
        (
            "_get_message_estimate",
            "returns how many messages to request",
            "none: the public prefetch count covers the whole channel, not one poll",
        ),
        (
            "_new_queue",
            "returns a queue's URL; if that fails at a worker's start, the worker exits without "
            "a traceback",
            _FOR_SUBCLASSES,
            "queue",
        ),
        (
            "_restore",
            "releases the messages that a consumer leaves behind",
            "none: the list of messages that the public `restore_unacked` restores is private, too",
        ),
        (
            "_schedule_queue",
            "polls a queue when the worker has room for a message",
            "none: this method decides when kombu polls a queue",
        ),
        (
            "_size",
            "lets a worker start without the permission to count a queue's messages",
            _FOR_SUBCLASSES,
        ),
        (
            "_update_queue_cache",
            "if SQS refuses to list queues at a worker's start, the worker exits without a "
            "traceback",
            "none: a new channel calls it directly, not through a public method",
        ),
        by=_OURS,
    ),
    *internals(
        _CHANNEL,
        (
            "_active_queues",
            "the queues that are consumed from",
            "our own record, kept in `basic_consume` and `basic_cancel`",
        ),
        (
            "_noack_queues",
            "the queues whose messages are deleted on receive",
            "our own record, kept in `basic_consume` and `basic_cancel`",
        ),
        (
            "_tag_to_queue",
            "the queue of a consumer",
            "our own record, kept in `basic_consume` and `basic_cancel`",
        ),
        (
            "_message_to_python",
            "decodes a message",
            "none: kombu decodes a message when it delivers it, and we lease it before that",
            "message, queue, url",
        ),
        (
            "_queue_cache",
            "the queues that SQS listed",
            "none: listing them again would need a permission and one more call for each channel",
        ),
    ),
    *internals(
        _CHANNEL,
        (
            "_delete_rejected_message",
            "shows whether kombu deletes messages that are rejected without requeue",
            "`kombu.VERSION`",
        ),
        since=(5, 7),
    ),
    *internals(
        f"{_SQS}:QoS",
        (
            "_delivered",
            "the prefetched messages, by receipt handle",
            "none: the public methods return the number of messages, not the messages",
        ),
        (
            "_extract_backoff_policy_configuration_and_message",
            "a message's backoff policy",
            "none: the public method applies the policy with its own call to SQS",
            "tag",
        ),
    ),
    *internals(
        f"{_SQS}:Transport",
        (
            "_callbacks",
            "the consumers, by queue",
            "none: `basic_consume` receives a callback that kombu has wrapped",
        ),
    ),
    *internals(
        "kombu.transport",
        (
            "_transport_cache",
            "removes the transport that kombu has already looked up",
            "none: kombu reads `TRANSPORT_ALIASES` only once for each scheme",
        ),
    ),
)
