"""What we override and use of kombu and vine."""

from __future__ import annotations

from celery_sqs_heartbeat.compat.needs import Need, overridden, used

_SQS = "kombu.transport.SQS"
_CHANNEL = f"{_SQS}:Channel"
_OURS = "celery_sqs_heartbeat.transport"

NEEDS: tuple[Need, ...] = (
    *overridden(
        _CHANNEL,
        f"{_OURS}:Channel",
        ("QoS", "counts what is prefetched"),
        ("_get_async", "receives on the event loop, and leases"),
        ("_get_bulk", "receives without an event loop, and leases"),
        ("_get_message_estimate", "says how many messages to ask for"),
        ("_restore", "gives back what a consumer leaves behind"),
        ("_schedule_queue", "polls a queue when there is room"),
        ("basic_ack", "deletes"),
        ("basic_cancel", "polls a queue no more"),
        ("basic_consume", "prepares a queue"),
        ("basic_qos", "changes the prefetch count"),
        ("basic_reject", "releases or deletes"),
        ("drain_events", "polls without an event loop"),
        ("fetch_message_attributes", "asks for the receive count"),
    ),
    *overridden(f"{_SQS}:Transport", f"{_OURS}:Transport", ("Channel", "is our channel")),
    *overridden(
        f"{_SQS}:QoS",
        f"{_OURS}.base:QoS",
        ("ack", "frees a prefetch slot"),
        ("can_consume", "says whether there is a slot"),
    ),
    *used(
        _CHANNEL,
        ("_active_queues", "the queues that are consumed from"),
        ("_message_to_python", "decodes a message", "message, queue, url"),
        ("_new_queue", "a queue's URL", "queue"),
        ("_queue_cache", "the queues that SQS listed"),
        ("_noack_queues", "the queues whose messages are deleted on receive"),
        ("_tag_to_queue", "the queue of a consumer"),
        ("asynsqs", "the client of the event loop", "queue="),
        ("canonical_queue_name", "a queue's name at SQS", "queue"),
        ("closed", "whether the channel is closed"),
        ("connection", "the channel's transport"),
        ("conninfo", "credentials"),
        ("endpoint_url", "where SQS is"),
        ("hub", "the event loop"),
        ("is_secure", "whether SQS is asked over TLS"),
        ("predefined_queues", "URLs and credentials of queues"),
        ("qos", "what is prefetched"),
        ("region", "where SQS is"),
        ("sqs", "the client without an event loop", "queue="),
        ("transport_options", "how SQS is reached"),
        ("wait_time_seconds", "how long a poll waits"),
    ),
    *used(
        _CHANNEL,
        ("_delete_rejected_message", "deletes what is rejected without requeue"),
        ("get_message_attributes", "the attributes to ask for"),
        since=(5, 7),
    ),
    *used(
        f"{_SQS}:QoS",
        ("_delivered", "what is prefetched, by receipt handle"),
        ("_extract_backoff_policy_configuration_and_message", "a message's backoff policy", "tag"),
        ("can_consume_max_estimate", "how many slots are free", ""),
        ("channel", "the channel that it belongs to"),
    ),
    *used(f"{_SQS}:QoS", ("is_backoff_task", "whether it has one", "tag"), since=(5, 7)),
    *used(
        f"{_SQS}:Transport",
        ("_callbacks", "the consumers, by queue"),
        ("_deliver", "hands a message to its consumer", "message, queue"),
        ("channel_errors", "what a broken channel raises"),
        ("connection_errors", "what a broken connection raises"),
        ("driver_type", "the broker's name"),
        ("polling_interval", "the pause after an empty poll"),
    ),
    *used(
        _SQS,
        ("Channel", "what our channel derives from"),
        ("QoS", "what our count of messages derives from"),
        ("Transport", "what our transport derives from"),
    ),
    *used(
        "kombu.transport",
        ("TRANSPORT_ALIASES", "has our transport used for sqs://"),
        ("_transport_cache", "forgets the transport that was looked up"),
    ),
    *used(
        "kombu.asynchronous",
        ("get_event_loop", "the current event loop", ""),
        ("set_event_loop", "brings it back after a reconnect", "hub"),
    ),
    *used("kombu.asynchronous.hub:Hub", ("call_later", "polls later", "seconds, call, queue")),
    *used("kombu.asynchronous.hub:Hub", ("call_soon", "polls at once", "call, queue")),
    *used(
        "kombu.asynchronous.hub:Hub",
        ("_ready_lock", "lets the handler of a signal call it"),
        since=(5, 7),
    ),
    *used(
        "kombu.asynchronous.aws.sqs.connection:AsyncSQSConnection",
        ("_httpclient", "the client that sends a poll"),
        (
            "receive_message",
            "polls",
            "queue, url, number_messages=, visibility_timeout=, wait_time_seconds=, callback=",
        ),
    ),
    *used(
        "kombu.asynchronous.http.curl:CurlClient",
        ("_curls", "keeps the connections of the last polls"),
        ("_fds", "reads the last polls beside the event loop"),
        ("_multi", "reads the last polls beside the event loop"),
        ("_pending", "drops polls that are not sent yet"),
        ("_pop_from_hub", "reads the last polls beside the event loop", ""),
        ("_process", "hands over what the last polls bring", "curl"),
        ("_socket_action", "reads the last polls beside the event loop"),
        since=(5, 6),
    ),
    *used(
        "kombu.asynchronous.http.curl:CurlClient",
        ("_closed", "whether polls can be read"),
        since=(5, 7),
    ),
    *used("kombu.utils.encoding", ("safe_repr", "shows any error", "error")),
    *used("kombu.utils.imports", ("symbol_by_name", "finds a task's request class", "name")),
    *used("vine", ("transform", "takes a poll's answer", "call, callback, poll")),
)
