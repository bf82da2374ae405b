"""The embedded SQS: moto on a thread of this process. It counts the calls."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

#: Receives before a message goes to the dead-letter queue: more than the demo needs.
MAX_RECEIVES = 10


class EmbeddedSqs:
    """Serves on a free loopback port during a `with` block."""

    def __init__(self) -> None:
        # One line per request on stderr would bury the output of the demo.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._calls: Counter[str] = Counter()
        # moto may deliver one message to two concurrent receivers.
        self._one_at_a_time = threading.Lock()
        self._server = make_server(
            "127.0.0.1", 0, self._handle, threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="embedded-sqs", daemon=True
        )

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> EmbeddedSqs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def make_queue(self, name: str, *, visibility_timeout: int) -> None:
        """Create a queue and its dead-letter queue."""
        sqs = boto3.client("sqs", endpoint_url=f"http://{self.address}")
        dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
        redrive = {
            "deadLetterTargetArn": attributes["Attributes"]["QueueArn"],
            "maxReceiveCount": MAX_RECEIVES,
        }
        sqs.create_queue(
            QueueName=name,
            Attributes={
                "VisibilityTimeout": str(visibility_timeout),
                "RedrivePolicy": json.dumps(redrive),
            },
        )

    def take_calls(self) -> Counter[str]:
        """Return how often each SQS operation was called since the last time."""
        with self._one_at_a_time:
            calls, self._calls = self._calls, Counter()
        return calls

    def _handle(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        operation = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        with self._one_at_a_time:
            self._calls[operation] += 1
            answer: Iterable[bytes] = self._moto(environ, start_response)
        return answer
