"""Jobs as folders, which the site and its workers share.

A message says only which job it is for. What a task makes becomes visible at once and as a
whole, so that a task that is killed half-way, or runs twice, leaves nothing half-done.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(os.environ.get("STUDIO_FOLDER", "outputs")).absolute()


@dataclass(frozen=True, slots=True)
class Job:
    """One order and what became of it.

    Attributes:
        kind: What is to be made, by the name of its task.
        size: How many of it.
        ordered_at: Wall clock, in seconds.
    """

    id: str
    kind: str
    size: int
    ordered_at: float

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return ROOT / self.id

    @property
    def upload(self) -> Path:
        """The file that came with the order."""
        return self.folder / "upload"

    @property
    def tries(self) -> list[str]:
        """One line for each time that a worker began it."""
        path = self.folder / "tries"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def files(self) -> list[str]:
        """The names of what it made; none until it is done."""
        made = self.folder / "made"
        return sorted(path.name for path in made.iterdir()) if made.exists() else []

    @property
    def state(self) -> str:
        """`waiting`, `started` or `done`."""
        if self.files:
            return "done"
        return "started" if self.tries else "waiting"

    def note_try(self, text: str) -> None:
        """Write down that a worker begins it."""
        with (self.folder / "tries").open("a") as tries:
            tries.write(text + "\n")

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Lend a folder that becomes `made` when the block ends well."""
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=self.folder))
        try:
            yield draft
            made = self.folder / "made"
            if not made.exists():
                draft.rename(made)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def order(kind: str, size: int, upload: bytes = b"") -> Job:
    """Make a new job and return it."""
    job = Job(str(uuid.uuid4()), kind, size, time.time())
    job.folder.mkdir(parents=True)
    job.upload.write_bytes(upload)
    terms = {"kind": kind, "size": size, "ordered_at": job.ordered_at}
    (job.folder / "order.json").write_text(json.dumps(terms))
    return job


def get(job_id: str) -> Job:
    """Return a job.

    Raises:
        KeyError: There is no such job.
    """
    try:
        terms = json.loads((ROOT / job_id / "order.json").read_text())
    except FileNotFoundError:
        raise KeyError(job_id) from None
    return Job(job_id, **terms)


def newest_first() -> list[Job]:
    """Return all jobs."""
    found = [get(path.parent.name) for path in ROOT.glob("*/order.json")]
    return sorted(found, key=lambda job: job.ordered_at, reverse=True)
