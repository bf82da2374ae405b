"""The HTTP/1.1 rim of the server: sockets and threads in, calls of the model out."""

from __future__ import annotations

import json

from celery_sqs_heartbeat.testing.admin import answer_admin
from celery_sqs_heartbeat.testing.connections import ConnectionServer, KeepAliveHandler
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.protocol import Reply, decode, reply_to, reply_to_error
from celery_sqs_heartbeat.testing.shared import ConnectionLost, SharedSqs


class Httpd(ConnectionServer):
    """Serves a `SharedSqs`."""

    def __init__(self, address: tuple[str, int], shared: SharedSqs) -> None:
        super().__init__(address, _Handler)
        self.shared = shared


class _Handler(KeepAliveHandler):
    """Answers SQS calls and the admin endpoint."""

    server: Httpd

    def do_GET(self) -> None:  # noqa: N802
        """Answer the admin endpoint."""
        self._handle()

    def do_PUT(self) -> None:  # noqa: N802
        """Answer the admin endpoint."""
        self._handle()

    def do_POST(self) -> None:  # noqa: N802
        """Answer an SQS call or the admin endpoint."""
        self._handle()

    def _handle(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "POST" and not self.path.startswith("/_"):
            try:
                self._send(self._call(content))
            except ConnectionLost:
                self.close_connection = True
        else:
            self._send(answer_admin(self.server.shared, self.command, self.path, content))

    def _call(self, content: bytes) -> Reply:
        shared = self.server.shared
        try:
            operation, request = decode(self.headers.get("X-Amz-Target", ""), content)
            answer = shared.call(operation, request)
        except SqsError as error:
            return reply_to_error(error)
        host = self.headers.get("Host") or "{}:{}".format(*self.server.server_address[:2])
        return reply_to(answer, inner_url=shared.sqs.url, outer_url=f"http://{host}")

    def _send(self, reply: Reply) -> None:
        headers = {"Content-Type": "application/x-amz-json-1.0", **reply.headers}
        self.reply(reply.status, headers, json.dumps(reply.payload).encode())
