"""Where a journal goes to, as people write it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: How a place on S3 begins, as people write it.
S3 = "s3://"
_WAY_OUT = "must be a folder, or s3://BUCKET/PREFIX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where segments go to: `key/dt=.../worker=.../seg-N.jsonl.zst`, the same each time."""

    bucket: str
    prefix: str

    def key(self, path: Path) -> str:
        """Return the key of a segment, by its path below the spool."""
        return "/".join(filter(None, (self.prefix, path.as_posix())))


def parse_target(target: str) -> Path | Destination:
    """Return the folder or the S3 prefix that a setting names.

    Raises:
        ValueError: It names neither; the message tells how it is written.
    """
    if not target.startswith(S3):
        if not target.strip() or "://" in target:
            raise ValueError(_WAY_OUT)
        return Path(target).expanduser()
    bucket, _, prefix = target.removeprefix(S3).rstrip("/").partition("/")
    parts = (bucket, *prefix.split("/")) if prefix else (bucket,)
    # Each is the name of a folder in the spool, too.
    if not all(part.strip(".") for part in parts):
        raise ValueError(_WAY_OUT)
    return Destination(bucket=bucket, prefix=prefix)
