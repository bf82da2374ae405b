"""Something that runs for the length of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

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
