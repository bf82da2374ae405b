"""Private names of kombu's event loop and of the client that sends its polls."""

from __future__ import annotations

from celery_sqs_heartbeat.worker.compat.needs import Need, internals

_NO_END = "none: `close` drops the open polls and the messages they would return"

PRIVATE: tuple[Need, ...] = (
    *internals(
        "kombu.asynchronous.hub:Hub",
        (
            "_ready_lock",
            "replaced, to let signal handlers schedule calls on the event loop",
            "none: `call_soon` acquires the lock, and the interrupted code may hold it",
        ),
        since=(5, 7),
    ),
    *internals(
        "kombu.asynchronous.aws.sqs.connection:AsyncSQSConnection",
        (
            "_httpclient",
            "the client that sends polls: wrapped for each poll, to call our guard before the "
            "poll is sent",
            "none: kombu's channel makes the connection and passes it the client",
        ),
    ),
    *internals(
        "kombu.asynchronous.http.curl:CurlClient",
        ("_curls", "keeps the connections of the last polls", _NO_END),
        ("_fds", "reads the last polls outside the event loop", _NO_END),
        (
            "_multi",
            "reads the last polls outside the event loop; keeps signal handlers from "
            "interrupting curl",
            _NO_END,
        ),
        ("_pending", "drops polls that were not sent yet", _NO_END),
        ("_pop_from_hub", "reads the last polls outside the event loop", _NO_END, ""),
        ("_process", "passes on the answers to the last polls", _NO_END, "curl"),
        (
            "_process_pending_requests",
            "keeps signal handlers from interrupting the reading of answers to polls",
            _NO_END,
            "",
        ),
        (
            "_socket_action",
            "reads the last polls outside the event loop; keeps signal handlers from "
            "interrupting curl",
            _NO_END,
        ),
        since=(5, 6),
    ),
    *internals(
        "kombu.asynchronous.http.curl:CurlClient",
        ("_closed", "whether polls can be read", "none: a client has no public attribute for it"),
        since=(5, 7),
    ),
)
