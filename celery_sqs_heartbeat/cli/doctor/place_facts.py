"""What was found of the places of this machine that a worker uses, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Place(enum.Enum):
    """What was found where a worker of this machine would write or listen."""

    USABLE = "usable"
    UNUSABLE = "unusable"
    #: A worker's status page is served there.
    OURS = "ours"
    #: S3 does not give the bucket.
    NO_BUCKET = "no bucket"
    #: As far as can be known without a write.
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What is known of the journal's place and the status page's address.

    Attributes:
        space: Bytes that the journal's file system has left for this user.
    """

    journal: Place = Place.USABLE
    journal_why: str = field(default="", repr=False)
    space: int | None = None
    page: Place = Place.USABLE
    page_why: str = field(default="", repr=False)
