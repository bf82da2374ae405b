"""Checks that a journal, its tables and a stream's checkpoint are in separate folders.

Spark reads every folder in a journal as a part of it, so tables there make it unreadable.
"""

from __future__ import annotations

import re
from itertools import combinations

from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.storage.path_checks import here

_URL = re.compile(r"(?:([a-z][a-z0-9+.-]*):(?=/))?(.*)", re.IGNORECASE | re.DOTALL)


def check_apart(*, is_here: bool | None = None, **places: str) -> None:
    """Refuse places that are the same, or one inside another.

    Args:
        is_here: Whether they are on this machine; None if that depends on Spark.
        places: Paths and URLs by name: journal, warehouse, checkpoint.

    Raises:
        PipelineError: Two of them are not separate, or one is empty.
    """
    parts = {what: _parts(path, is_here) for what, path in places.items()}
    for one, other in combinations(places, 2):
        if parts[one] == parts[other]:
            raise _wrong(places, one, other, "is the same place as")
        for inner, outer in ((one, other), (other, one)):
            if parts[inner][: len(parts[outer])] == parts[outer]:
                raise _wrong(places, inner, outer, "is in")


def _parts(path: str, is_here: bool | None) -> tuple[str, ...]:
    """Return the names that lead to a place. For a folder of this machine, links are resolved."""
    folder = here(path, is_here)
    if folder is not None:
        return folder.resolve().parts
    match = _URL.fullmatch(path)
    assert match is not None
    # Both names mean S3: its own, and that of Spark's connector.
    scheme = (match[1] or "").lower().replace("s3a", "s3")
    return (scheme, *(name for name in match[2].split("/") if name not in ("", ".")))


def _wrong(places: dict[str, str], inner: str, outer: str, relation: str) -> PipelineError:
    return PipelineError(
        f"the {inner} {places[inner]!r} {relation} the {outer} {places[outer]!r}: give each a "
        "separate folder outside of the others"
    )
