"""Public names of kombu and vine that we override or use."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, overridden, used

_SQS = "kombu.transport.SQS"
_CHANNEL = f"{_SQS}:Channel"
_OURS = "celery_sqs_heartbeat.transport"

NEEDS: tuple[Need, ...] = (
    *overridden(
        _CHANNEL,
        f"{_OURS}.channel:Channel",
        ("QoS", "counts prefetched messages"),
        ("basic_ack", "deletes"),
        ("basic_cancel", "stops polling a queue"),
        ("basic_consume", "prepares a queue"),
        ("basic_qos", "changes the prefetch count"),
        ("basic_reject", "releases or deletes"),
        ("drain_events", "polls without an event loop"),
        ("fetch_message_attributes", "requests the receive count"),
        ("sqs", "makes deletes take less CPU"),
        ("visibility_timeout", "checks options for new queues before one is created"),
    ),
    *overridden(f"{_SQS}:Transport", f"{_OURS}:Transport", ("Channel", "makes our channel")),
    *overridden(
        f"{_SQS}:QoS",
        f"{_OURS}.qos:QoS",
        ("ack", "frees a prefetch slot"),
        ("can_consume", "returns whether a prefetch slot is free"),
    ),
    *used(
        _CHANNEL,
        ("asynsqs", "the client of the event loop", "queue="),
        ("canonical_queue_name", "a queue's name at SQS", "queue"),
        ("closed", "whether the channel is closed"),
        ("connection", "the channel's transport"),
        ("conninfo", "credentials"),
        ("endpoint_url", "where SQS is"),
        ("hub", "the event loop"),
        ("is_secure", "whether SQS is called over TLS"),
        ("predefined_queues", "URLs and credentials of queues"),
        ("qos", "the prefetched messages"),
        ("region", "where SQS is"),
        ("sqs", "the client without an event loop", "queue="),
        ("transport_options", "how SQS is reached"),
        ("wait_time_seconds", "how long a poll waits"),
    ),
    *used(
        _CHANNEL,
        ("get_message_attributes", "the attributes to request"),
        since=(5, 7),
    ),
    *used(
        f"{_SQS}:QoS",
        ("can_consume_max_estimate", "how many slots are free", ""),
        ("channel", "the channel that it belongs to"),
    ),
    *used(
        f"{_SQS}:QoS",
        ("is_backoff_task", "whether a message has a backoff policy", "tag"),
        since=(5, 7),
    ),
    *used(
        f"{_SQS}:Transport",
        ("channel_errors", "the errors of a broken channel"),
        ("connection_errors", "the errors of a broken connection"),
        ("driver_type", "the broker's name"),
        ("polling_interval", "the pause after an empty poll"),
    ),
    *used(
        _SQS,
        ("Channel", "the base class of our channel"),
        ("QoS", "the base class of our prefetch count"),
        ("UndefinedQueueException", "reports a queue that is not predefined"),
        ("Transport", "the base class of our transport"),
    ),
    *used(
        "kombu.transport",
        ("TRANSPORT_ALIASES", "makes kombu use our transport for sqs://"),
    ),
    *used(
        "kombu.asynchronous",
        ("get_event_loop", "the current event loop", ""),
        ("set_event_loop", "restores it after a reconnect", "hub"),
    ),
    *used("kombu.asynchronous.hub:Hub", ("call_later", "polls later", "seconds, call, queue")),
    *used("kombu.asynchronous.hub:Hub", ("create_loop", "starts tasks before a shutdown", "")),
    *used("kombu.asynchronous.hub:Hub", ("call_soon", "polls at once", "call, queue")),
    *used(
        "kombu.asynchronous.hub:Hub",
        ("add_reader", "lets other threads wake it", "file, call"),
        ("readers", "whether it has anything to read"),
        ("writers", "whether it has anything to write"),
    ),
    *used(
        "kombu.asynchronous.http.curl:CurlClient",
        ("max_clients", "how many polls may be open"),
        since=(5, 6),
    ),
    *used(
        "kombu.asynchronous.aws.sqs.connection:AsyncSQSConnection",
        (
            "receive_message",
            "polls",
            "queue, url, number_messages=, visibility_timeout=, wait_time_seconds=, callback=",
        ),
        ("STATUS_CODES_SERVER_ERRORS", "emptied, to learn of answers that are errors"),
        ("STATUS_CODES_TIMEOUT", "emptied, to learn of polls without an answer"),
    ),
    *used("kombu.utils.encoding", ("safe_repr", "formats any error", "error")),
    *used("kombu.utils.encoding", ("safe_str", "formats any traceback", "traceback")),
    *used("kombu.utils.imports", ("symbol_by_name", "finds a task's request class", "name")),
    *used("vine", ("transform", "receives a poll's answer", "call, callback, poll")),
)
