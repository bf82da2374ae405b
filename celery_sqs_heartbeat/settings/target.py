"""Reads the folder or the S3 prefix that a journal is written to, as users write it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: The prefix of a place on S3, as users write it.
S3 = "s3://"
_WAY_OUT = "must be a folder, or s3://BUCKET/PREFIX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The S3 place of segments: `PREFIX/dt=.../worker=.../seg-N.jsonl.zst`, always the same."""

    bucket: str
    prefix: str

    def key(self, path: Path) -> str:
        """Return the key of a segment, by its path below the spool."""
        return "/".join(filter(None, (self.prefix, path.as_posix())))


def parse_target(target: str) -> Path | Destination:
    """Return the folder or the S3 prefix that a setting names.

    Raises:
        ValueError: It names neither; the message says how to write one.
    """
    if not target.startswith(S3):
        if not target.strip() or "://" in target:
            raise ValueError(_WAY_OUT)
        return Path(target).expanduser()
    bucket, _, prefix = target.removeprefix(S3).rstrip("/").partition("/")
    parts = (bucket, *prefix.split("/")) if prefix else (bucket,)
    # Each part is also the name of a folder in the spool.
    if not all(part.strip(".") for part in parts):
        raise ValueError(_WAY_OUT)
    return Destination(bucket=bucket, prefix=prefix)
