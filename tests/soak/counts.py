"""Counts the messages in the queues. It calls the server directly, without a proxy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tests.soak.load import QUEUES


class Counts:
    """Reads the soak's queues.

    Args:
        client: A boto3 client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._urls = {url.rsplit("/", 1)[-1]: url for url in client.list_queues()["QueueUrls"]}

    def waiting(self) -> int:
        """Return how many messages are visible now."""
        return sum(self._count(name, [""]) for name in QUEUES)

    def left(self) -> int:
        """Return how many messages the queues have, hidden or not, without dead letters.

        A message may move to a queue that was counted already. So only a second 0 is certain.
        """
        return self._all() or self._all()

    def take_left(self) -> set[str]:
        """Receive all visible messages of the queues. Return their ids."""
        return set(itertools.chain.from_iterable(map(self._take, QUEUES)))

    def take_dead(self) -> set[str]:
        """Receive all dead letters. Return their message ids."""
        names = [name for name in self._urls if name not in QUEUES]
        return set(itertools.chain.from_iterable(map(self._take, names)))

    def _all(self) -> int:
        return sum(self._count(name, ["", "NotVisible", "Delayed"]) for name in QUEUES)

    def _count(self, name: str, kinds: list[str]) -> int:
        # By one call, because a message may become visible at any time.
        answer = self._client.get_queue_attributes(
            QueueUrl=self._urls[name],
            AttributeNames=[f"ApproximateNumberOfMessages{kind}" for kind in kinds],
        )
        return sum(int(number) for number in answer["Attributes"].values())

    def _take(self, name: str) -> Iterator[str]:
        while messages := self._client.receive_message(
            QueueUrl=self._urls[name], MaxNumberOfMessages=10, VisibilityTimeout=3600
        ).get("Messages"):
            yield from (message["MessageId"] for message in messages)
