"""A task that runs with many messages at once, without celery-batches."""

from __future__ import annotations

from typing import Any

from tests.acceptance.proj import app, note
from tests.soak.gathering import Gathers

MODULE = __name__


def run_all(requests: list[tuple[str, Any, str]], _: None) -> None:
    for _id, _message, key in requests:
        note("together", key)


class Gathered(Gathers):
    abstract = True
    work = staticmethod(run_all)

    def flush(self, requests: Any) -> Any:
        note("flush", "")
        return super().flush(requests)


@app.task(base=Gathered, name="tests.acceptance.proj.gathered")
def gathered(key: str) -> None:
    """Never runs alone."""
