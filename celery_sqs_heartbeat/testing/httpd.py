"""The HTTP/1.1 side of the server: turns requests into calls of the model."""

from __future__ import annotations

import json
import time
import traceback
from email.utils import formatdate

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.testing.admin import answer_admin
from celery_sqs_heartbeat.testing.connections import ConnectionServer, KeepAliveHandler
from celery_sqs_heartbeat.testing.errors import SqsError, internal
from celery_sqs_heartbeat.testing.protocol import Reply, decode, reply_to, reply_to_error
from celery_sqs_heartbeat.testing.shared import ConnectionLost, SharedSqs

logger = get_logger(__name__)


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
        try:
            answer = self._render(self._reply())
        except ConnectionLost:
            self.close_connection = True
            return
        except ConnectionError:
            # The client has left: there is no one to answer.
            raise
        except Exception as error:
            self._log(error)
            answer = self._render(reply_to_error(internal()))
        self.reply(*answer)

    def _log(self, error: Exception) -> None:
        """Log the error in one line: a client that repeats its call causes it again."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        logger.error(
            "sqs-heartbeat: the simulated SQS failed on %s %s %s: %s: %s (%s:%s)",
            self.command,
            self.path,
            self.headers.get("X-Amz-Target", ""),
            type(error).__name__,
            error,
            where.filename,
            where.lineno,
        )

    def _reply(self) -> Reply:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "POST" and not self.path.startswith("/_"):
            return self._call(content)
        return answer_admin(self.server.shared, self.command, self.path, content)

    def _call(self, content: bytes) -> Reply:
        shared = self.server.shared
        try:
            operation, request = decode(self.headers.get("X-Amz-Target", ""), content)
            answer = shared.call(operation, request)
        except SqsError as error:
            return reply_to_error(error)
        host = self.headers.get("Host") or "{}:{}".format(*self.server.server_address[:2])
        return reply_to(answer, inner_url=shared.sqs.url, outer_url=f"http://{host}")

    def _render(self, reply: Reply) -> tuple[int, dict[str, str], bytes]:
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            # Not from the model's monotonic clock, which stops while the machine sleeps: the doctor
            # would blame the machine's clock.
            "Date": formatdate(time.time() + self.server.shared.ahead, usegmt=True),
            **reply.headers,
        }
        return reply.status, headers, json.dumps(reply.payload).encode()
