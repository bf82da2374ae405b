"""Private names of kombu's event loop and of its client for polls."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

_NO_END = "none: `close` drops the polls that are open, with the messages that they bring"

PRIVATE: tuple[Need, ...] = (
    *internals(
        "kombu.asynchronous.hub:Hub",
        (
            "_ready_lock",
            "lets the handler of a signal call the event loop",
            "none: `call_soon` takes the lock, which the interrupted code may hold",
        ),
        since=(5, 7),
    ),
    *internals(
        "kombu.asynchronous.aws.sqs.connection:AsyncSQSConnection",
        (
            "_httpclient",
            "the client that sends a poll: each has a guard of ours before it is sent",
            "none: a connection is given its client as it is made, which kombu's channel does",
        ),
    ),
    *internals(
        "kombu.asynchronous.http.curl:CurlClient",
        ("_curls", "keeps the connections of the last polls", _NO_END),
        ("_fds", "reads the last polls beside the event loop", _NO_END),
        (
            "_multi",
            "reads the last polls beside the event loop; keeps signals out of curl's work",
            _NO_END,
        ),
        ("_pending", "drops polls that are not sent yet", _NO_END),
        ("_pop_from_hub", "reads the last polls beside the event loop", _NO_END, ""),
        ("_process", "hands over what the last polls bring", _NO_END, "curl"),
        (
            "_process_pending_requests",
            "keeps signals out of the reading of what polls bring",
            _NO_END,
            "",
        ),
        (
            "_socket_action",
            "reads the last polls beside the event loop; keeps signals out of curl's work",
            _NO_END,
        ),
        since=(5, 6),
    ),
    *internals(
        "kombu.asynchronous.http.curl:CurlClient",
        ("_closed", "whether polls can be read", "none: a client does not say so publicly"),
        since=(5, 7),
    ),
)
