"""A task that runs with many messages at once, without celery-batches."""

from __future__ import annotations

from typing import Any

from tests.acceptance.proj import app, note, wait_to_end
from tests.support.gathering import Gathers

MODULE = __name__


class Gathered(Gathers):
    abstract = True

    @staticmethod
    def work(requests: list[tuple[str, Any, str]], _: None) -> None:
        for _id, _message, key in requests:
            note("together", key)

    def flush(self, requests: Any) -> Any:
        wait_to_end("gathering")
        note("flush", "")
        return super().flush(requests)


@app.task(base=Gathered, name="tests.acceptance.proj.gathered")
def gathered(key: str) -> None:
    """Never runs alone."""
