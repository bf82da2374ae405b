"""The state of the places on this machine that a worker uses, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Place(enum.Enum):
    """Whether a worker on this machine can write or listen at a place."""

    USABLE = "usable"
    UNUSABLE = "unusable"
    #: A worker already serves its status page there.
    OURS = "ours"
    #: S3 does not let us use the bucket.
    NO_BUCKET = "no bucket"
    #: Usable, as far as can be known without a write.
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """The state of the journal's place and of the status page's address.

    Attributes:
        space: Bytes that the journal's file system has left for this user.
    """

    journal: Place = Place.USABLE
    journal_why: str = field(default="", repr=False)
    space: int | None = None
    page: Place = Place.USABLE
    page_why: str = field(default="", repr=False)
