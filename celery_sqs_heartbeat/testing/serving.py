"""A simulated SQS that real workers and clients reach over HTTP."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.httpd import Httpd
from celery_sqs_heartbeat.testing.shared import SharedSqs
from celery_sqs_heartbeat.testing.sqs import SimulatedSqs

if TYPE_CHECKING:
    from typing_extensions import Self


class SimulatedServer:
    """Serves a `SimulatedSqs` for the length of a `with` block.

    Args:
        host: Address to listen on.
        port: 0 takes a free one.
        seed: Makes handles, ids and random choices repeatable.
        faults: The faults from the beginning.

    Raises:
        OSError: The server cannot listen on the address.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        seed: int = 0,
        faults: Faults | None = None,
    ) -> None:
        self._shared = SharedSqs(seed=seed, faults=faults)
        self._httpd = Httpd((host, port), self._shared)

    @property
    def url(self) -> str:
        """The endpoint for clients, without a path."""
        return "http://{}:{}".format(*self._httpd.server_address[:2])

    @property
    def broker_url(self) -> str:
        """The endpoint for Celery; needs the transport option `is_secure=False`."""
        return self.url.replace("http://", "sqs://testing:testing@")

    @property
    def sqs(self) -> SimulatedSqs:
        """The model. Look at it, or change its options, while nothing calls the server."""
        return self._shared.sqs

    @property
    def faults(self) -> Faults:
        """The faults; set it to change them for later calls."""
        return self._shared.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._shared.faults = faults

    def advance(self, seconds: float) -> None:
        """Move SQS's clock forward: timeouts run out, while the clients' clocks stay.

        Raises:
            ValueError: The number is negative or not finite.
        """
        self._shared.advance(seconds)

    def calls(self) -> dict[str, int]:
        """Return how many calls of each operation were made, lost ones too."""
        return self._shared.calls()

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
        self._shared.close()
        self._httpd.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
