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
            "receives on the event loop, and leases",
            "none: kombu has no hook between the answer of a poll and the delivery of its messages",
        ),
        (
            "_get_bulk",
            "receives without an event loop, and leases",
            "none: kombu has no hook between the answer of a poll and the delivery of its messages",
        ),
        (
            "_get_message_estimate",
            "says how many messages to ask for",
            "none: the public prefetch count is of the channel, not of one poll",
        ),
        (
            "_new_queue",
            "returns a queue's URL, and ends a start without a traceback where there is none",
            _FOR_SUBCLASSES,
            "queue",
        ),
        (
            "_restore",
            "gives back what a consumer leaves behind",
            "none: which messages the public `restore_unacked` goes through is private, too",
        ),
        (
            "_schedule_queue",
            "polls a queue when there is room",
            "none: kombu decides in it when a queue is polled",
        ),
        (
            "_size",
            "lets a worker start that may not count a queue's messages",
            _FOR_SUBCLASSES,
        ),
        (
            "_update_queue_cache",
            "ends a start without a traceback where no queue is listed",
            "none: a channel calls it as it is made, past all public methods",
        ),
        by=_OURS,
    ),
    *internals(
        _CHANNEL,
        (
            "_active_queues",
            "the queues that are consumed from",
            "a record of our own in `basic_consume` and `basic_cancel`",
        ),
        (
            "_noack_queues",
            "the queues whose messages are deleted on receive",
            "a record of our own in `basic_consume` and `basic_cancel`",
        ),
        (
            "_tag_to_queue",
            "the queue of a consumer",
            "a record of our own in `basic_consume` and `basic_cancel`",
        ),
        (
            "_message_to_python",
            "decodes a message",
            "none: kombu decodes as it delivers, and a message is leased before that",
            "message, queue, url",
        ),
        (
            "_queue_cache",
            "the queues that SQS listed",
            "none: to list them again takes a permission and a call for each channel",
        ),
    ),
    *internals(
        _CHANNEL,
        (
            "_delete_rejected_message",
            "tells whether kombu deletes what is rejected without requeue",
            "`kombu.VERSION`",
        ),
        since=(5, 7),
    ),
    *internals(
        f"{_SQS}:QoS",
        (
            "_delivered",
            "what is prefetched, by receipt handle",
            "none: the public methods say how many messages there are, not which",
        ),
        (
            "_extract_backoff_policy_configuration_and_message",
            "a message's backoff policy",
            "none: the public method applies the policy, by a call of its own to SQS",
            "tag",
        ),
    ),
    *internals(
        f"{_SQS}:Transport",
        (
            "_callbacks",
            "the consumers, by queue",
            "none: `basic_consume` is given a callback that kombu wraps",
        ),
        (
            "_deliver",
            "hands a message to its consumer",
            "none: `drain_events` receives before it delivers",
            "message, queue",
        ),
    ),
    *internals(
        "kombu.transport",
        (
            "_transport_cache",
            "forgets the transport that was looked up",
            "none: `TRANSPORT_ALIASES` is read once for each scheme",
        ),
    ),
)
