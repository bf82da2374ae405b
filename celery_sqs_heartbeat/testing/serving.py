"""A simulated SQS that real workers and clients reach over HTTP."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections import Counter
from email.message import Message
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.testing import httpd
from celery_sqs_heartbeat.testing.errors import SqsError, internal
from celery_sqs_heartbeat.testing.faults import Faults, parse_faults
from celery_sqs_heartbeat.testing.httpd import ConnectionLost, HttpAnswer, Httpd
from celery_sqs_heartbeat.testing.sqs import Answer, Request, SimulatedSqs

if TYPE_CHECKING:
    from typing_extensions import Self

logger = get_logger(__name__)

_RECEIVE = "ReceiveMessage"


class SimulatedServer:
    """Serves a `SimulatedSqs` for the length of a `with` block.

    Long polls wait, calls take time, and SQS's clock can be moved.

    Args:
        host: Address to listen on.
        port: 0 takes a free one.
        seed: Makes handles, ids and random choices repeatable.
        faults: The faults from the beginning.

    Attributes:
        sqs: The model. Look at it, or change its options, while nothing calls the server.
        ahead: How far SQS's clock is ahead of real time, in seconds.

    Raises:
        OSError: The server cannot listen on the address.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, seed: int = 0, faults: Faults | None = None
    ) -> None:
        self.ahead = 0.0
        self._changed = threading.Condition()
        self._is_closed = False
        self._calls: Counter[str] = Counter()
        self.sqs = SimulatedSqs(self._now, seed=seed, faults=faults)
        self._httpd = Httpd((host, port), self._answer)

    @property
    def url(self) -> str:
        """The endpoint for clients, without a path."""
        return "http://{}:{}".format(*self._httpd.server_address[:2])

    @property
    def broker_url(self) -> str:
        """The endpoint for Celery; needs the transport option `is_secure=False`."""
        return self.url.replace("http://", "sqs://testing:testing@")

    @property
    def faults(self) -> Faults:
        """The faults; set it to change them for later calls."""
        return self.sqs.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        with self._changed:
            self.sqs.faults = faults

    def advance(self, seconds: float) -> None:
        """Move SQS's clock forward: timeouts run out, while the clients' clocks stay.

        Raises:
            ValueError: The number is negative or not finite.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds={seconds!r} must be a number of seconds, 0 or more")
        with self._changed:
            self.ahead += seconds
            self._changed.notify_all()

    def calls(self) -> dict[str, int]:
        """Return how many calls of each operation were made, lost ones too."""
        with self._changed:
            return dict(self._calls)

    def client(self, **config: Any) -> Any:
        """Return a boto3 client for it; `config` is passed to `botocore.config.Config`."""
        return boto3.client(
            "sqs",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 - any key will do
            # A web proxy set in the environment must not see loopback traffic.
            config=Config(**{"proxies": {}, **config}),
        )

    def start(self) -> None:
        """Serve on a separate thread."""
        threading.Thread(
            target=self._httpd.serve_forever, args=(0.02,), name="simulated-sqs", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop listening; open connections and long polls end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._httpd.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.stop()

    def call(self, operation: str, request: Request) -> Answer:
        """Do an operation; a long poll returns when it has messages or its time has ended.

        Raises:
            SqsError: SQS refuses it, or a fault happened.
            ConnectionLost: A fault happened, or `stop` ended a long poll.
        """
        with self._changed:
            self._calls[operation] += 1
            faults = self.sqs.faults
            fault = faults.of(operation)
            there, back = faults.travel_time(operation), faults.travel_time(operation)
            is_request_lost = faults.happens(fault.lost_request)
            is_answer_lost = faults.happens(fault.lost_answer)
        time.sleep(there)
        if is_request_lost:
            raise ConnectionLost
        try:
            with self._changed:
                return (
                    self._receive(request)
                    if operation == _RECEIVE
                    else self._do(operation, request)
                )
        finally:
            time.sleep(back)
            if is_answer_lost:
                raise ConnectionLost

    def _now(self) -> float:
        return time.monotonic() + self.ahead

    def _do(self, operation: str, request: Request) -> Answer:
        answer = self.sqs.call(operation, request)
        if not operation.startswith(("Get", "List")):
            self._changed.notify_all()
        return answer

    def _receive(self, request: Request) -> Answer:
        answer = self.sqs.call(_RECEIVE, request)
        queue = self.sqs.queue(request["QueueUrl"])
        wait = request.get("WaitTimeSeconds")
        seconds = int(queue.options.wait if wait is None else wait)
        # On the moved clock, so a jump past the deadline ends the poll, too.
        deadline, ends_at = self._now() + seconds, time.monotonic() + seconds
        while not answer and (now := self._now()) < deadline:
            # Wait until something happens to a message, or time alone makes one visible.
            ahead = (m.visible_at for m in queue.messages.values() if m.visible_at > now)
            self._changed.wait(min([*ahead, deadline]) - now)
            if self._is_closed:
                raise ConnectionLost
            if time.monotonic() >= ends_at:
                # The machine stalled. What is visible by now may have become so after the end.
                break
            count = len(queue.messages)
            answer = self.sqs.perform(_RECEIVE, request)
            if len(queue.messages) < count:
                # Messages moved to the dead-letter queue, where others may wait for them.
                self._changed.notify_all()
        return answer

    def _answer(self, method: str, path: str, headers: Message, content: bytes) -> HttpAnswer:
        """Answer an HTTP request: an SQS call, or one of the server's own."""
        target = headers.get("X-Amz-Target", "")
        try:
            if method == "POST" and not path.startswith("/_"):
                status, head, body = self._answer_call(target, headers.get("Host"), content)
            else:
                status, head, body = self._answer_admin(f"{method} {path}", content)
        except ConnectionLost:
            raise
        except Exception as error:
            _log(f"{method} {path} {target}", error)
            status, head, body = httpd.encode_error(internal())
        # Not from the model's monotonic clock, which stops while the machine sleeps: the doctor
        # would blame the machine's clock.
        date = formatdate(time.time() + self.ahead, usegmt=True)
        return status, {**head, "Date": date}, body

    def _answer_call(self, target: str, host: str | None, content: bytes) -> HttpAnswer:
        try:
            answer = self.call(*httpd.decode(target, content))
        except SqsError as error:
            return httpd.encode_error(error)
        # Queue URLs begin with the address that the client used.
        inner, outer = self.sqs.url, f"http://{host}" if host else self.url
        if "QueueUrl" in answer:
            answer["QueueUrl"] = answer["QueueUrl"].replace(inner, outer, 1)
        if "QueueUrls" in answer:
            answer["QueueUrls"] = [url.replace(inner, outer, 1) for url in answer["QueueUrls"]]
        return httpd.encode(answer)

    def _answer_admin(self, request: str, content: bytes) -> HttpAnswer:
        """Read or change the faults and the clock. A bad request changes nothing."""
        try:
            match request:
                case "GET /_faults":
                    return httpd.encode(self.faults.as_plain())
                case "PUT /_faults":
                    self.faults = parse_faults(content)
                    return httpd.encode(self.faults.as_plain())
                case "GET /_calls":
                    return httpd.encode(self.calls())
                case "POST /_advance":
                    self.advance(_read_seconds(content))
                    return httpd.encode({"ahead": self.ahead})
        except ValueError as error:
            return httpd.encode_error(SqsError("BadRequest", str(error)))
        known = "GET /_faults, PUT /_faults, GET /_calls, POST /_advance"
        return httpd.encode_error(
            SqsError("NotFound", f"{request} is unknown: use one of {known}", 404)
        )


def _log(request: str, error: Exception) -> None:
    """Log an unforeseen error in one line: a client that repeats its call causes it again."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{request}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    logger.error("sqs-heartbeat: the simulated SQS failed on %s", what)


def _read_seconds(content: bytes) -> float:
    try:
        return float(json.loads(content)["seconds"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f'the body must look like {{"seconds": 60}}, not {content!r}') from None
