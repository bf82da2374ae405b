"""Clients of SQS, services on loopback, and botocore's descriptions of AWS."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config

if TYPE_CHECKING:
    from typing_extensions import Self


class Service(ABC):
    """Starts, serves on loopback at `url`, and stops."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The endpoint, without a path."""

    @property
    def broker_url(self) -> str:
        """The endpoint as Celery's `broker_url`; needs the transport option `is_secure=False`."""
        return self.url.replace("http://", "sqs://testing:testing@")

    @abstractmethod
    def start(self) -> None:
        """Start it and return once it answers."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

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


def sqs_client(url: str, **config: Any) -> Any:
    """Return a boto3 SQS client that talks to `url` with dummy keys.

    Args:
        url: Endpoint of a server, or of a proxy in front of it.
        config: Settings of `botocore.config.Config`, for example `retries`.
    """
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        # A web proxy set in the environment must not see loopback traffic.
        config=Config(**{"proxies": {}, **config}),
    )


def share_descriptions() -> None:
    """Make all later sessions of this process share the descriptions that they read.

    Otherwise each reads and parses them again, which takes a tenth of a second of CPU. kombu makes
    a session for each channel, and the tests make a thousand.
    """
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)


def read_sqs() -> None:
    """Read what clients of SQS and STS need, for later sessions."""
    for service in ("sqs", "sts"):
        boto3.Session().client(
            service,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
