"""The server's HTTP side: connections that stay open, and the AWS JSON protocol.

boto3 and kombu use that protocol with SQS.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.validate import ParamValidator

from celery_sqs_heartbeat.testing.errors import SqsError, missing
from celery_sqs_heartbeat.testing.model import input_shape
from celery_sqs_heartbeat.testing.sqs import method_of

#: Status, headers and content.
HttpAnswer = tuple[int, Mapping[str, str], bytes]

_TYPE = {"Content-Type": "application/x-amz-json-1.0"}
#: Error shapes whose names differ from the last part of the query protocol's code
#: (botocore's model of SQS, and AWS's answers as LocalStack recorded them).
_SHAPES = {
    "AccessDenied": "AccessDeniedException",
    "InvalidAction": "UnknownOperationException",
    "InvalidParameterValue": "InvalidParameterValueException",
    "MissingParameter": "MissingRequiredParameterException",
    "NonExistentQueue": "QueueDoesNotExist",
    "QueueAlreadyExists": "QueueNameExists",
}


class ConnectionLost(Exception):
    """The caller gets no answer, whether or not its call was done."""


class ConnectionServer(ThreadingHTTPServer):
    """One thread for each connection."""

    daemon_threads = True
    # Workers and benchmarks open many connections at once; the default backlog is 5.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, to close it with the server."""
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection and close it."""
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that left: workers get killed during their calls."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Stop listening and close the open connections."""
        self.shutdown()
        self.server_close()
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class KeepAliveHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, each in one packet."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Buffered, so head and body leave together.
    wbufsize = -1

    def reply(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        """Send an answer."""
        self.reply_head(status, headers, len(content))
        self.wfile.write(content)
        self.wfile.flush()

    def reply_head(self, status: int, headers: Mapping[str, str], length: int) -> None:
        """Begin an answer. It avoids send_response, which logs a line per call."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class Httpd(ConnectionServer):
    """Serves what a function answers.

    Args:
        answer: Gets method, path, headers and content. If it raises `ConnectionLost`, the
            connection ends without an answer.
    """

    def __init__(
        self, address: tuple[str, int], answer: Callable[[str, str, Message, bytes], HttpAnswer]
    ) -> None:
        super().__init__(address, _Handler)
        self.answer = answer


class _Handler(KeepAliveHandler):
    server: Httpd

    def do_POST(self) -> None:
        """Answer a request of any method."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer = self.server.answer(self.command, self.path, self.headers, content)
        except ConnectionLost:
            self.close_connection = True
            return
        self.reply(*answer)

    do_GET = do_PUT = do_POST  # noqa: N815


def decode(target: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the operation and its request, checked against botocore's model of SQS.

    Args:
        target: The header `X-Amz-Target`.

    Raises:
        SqsError: It is not a valid request.
    """
    service, _, operation = target.rpartition(".")
    if service != "AmazonSQS":
        raise SqsError(
            "InvalidAction",
            f"The header X-Amz-Target must be AmazonSQS.<operation>, not {target!r}: use boto3 "
            "1.34 or later, which speaks this protocol",
        )
    method_of(operation)  # refuses what is not modelled
    try:
        request = json.loads(content or b"{}", object_hook=_with_bytes)
    except ValueError as error:
        raise SqsError("SerializationException", f"The body can't be read: {error}") from None
    if not isinstance(request, dict):
        raise SqsError("SerializationException", "The body is not a JSON object.")
    shape = input_shape(operation)
    # SQS ignores members that it does not know.
    request = {name: value for name, value in request.items() if name in shape.members}
    for name in shape.required_members:
        if name not in request:
            raise missing(name)
    faults = ParamValidator().validate(request, shape)
    if faults.has_errors():
        raise SqsError("SerializationException", faults.generate_report())
    return operation, request


def encode(answer: Mapping[str, Any]) -> HttpAnswer:
    """Return the reply to a successful call."""
    return 200, _TYPE, json.dumps(answer, default=_as_base64).encode()


def encode_error(error: SqsError) -> HttpAnswer:
    """Return the reply to a refused call.

    boto3 shows the header's code, and keeps the shape's name as `QueryErrorCode`.
    """
    last = error.code.rsplit(".", 1)[-1]
    fault = "Sender" if error.sender_fault else "Receiver"
    payload = {"__type": f"com.amazonaws.sqs#{_SHAPES.get(last, last)}", "message": error.text}
    headers = {**_TYPE, "x-amzn-query-error": f"{error.code};{fault}"}
    return error.status, headers, json.dumps(payload).encode()


def _with_bytes(read: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a request with bytes in place of base64, of which only these values are."""
    if isinstance(read.get("BinaryValue"), str):
        read["BinaryValue"] = base64.b64decode(read["BinaryValue"], validate=True)
    return read


def _as_base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode()
