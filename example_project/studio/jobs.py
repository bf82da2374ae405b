"""Jobs as folders, which the site and its workers share.

A message names only its job. The files that a task makes become visible all at once. So a task
that is killed, or runs twice, leaves nothing half-done.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from studio import tries
from studio.tries import Try

ROOT = Path(os.environ.get("STUDIO_FOLDER", "outputs")).absolute()


@dataclass(frozen=True, slots=True)
class Job:
    """One order and its results.

    Attributes:
        kind: What to make: the name of the task.
        size: How many pictures or pages to make.
        ordered_at: The time of the order, in Unix seconds.
        upload_name: The name of the customer's file, for display.
    """

    id: str
    kind: str
    size: int
    ordered_at: float
    upload_name: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return ROOT / self.id

    @property
    def upload(self) -> Path:
        """The file that came with the order."""
        return self.folder / "upload"

    @property
    def ordered(self) -> str:
        """The time of the order, in ISO 8601 and UTC."""
        return f"{datetime.fromtimestamp(self.ordered_at, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def tries(self) -> list[Try]:
        """The tries of the job, the first one first."""
        return tries.of(self.folder / "tries")

    @property
    def files(self) -> list[str]:
        """The names of the files that the job made. There are none until it is done."""
        made = self.folder / "made"
        return sorted(path.name for path in made.iterdir()) if made.exists() else []

    @property
    def state(self) -> str:
        """`waiting`, `started`, `done`, `retrying` or `failed`.

        After the last try SQS moves the message to the dead-letter queue. Then the job has failed,
        whether its task raised an error or its worker was killed.
        """
        if self.files:
            return "done"
        begun = self.tries
        if not begun:
            return "waiting"
        if any(each.is_running for each in begun):
            return "started"
        return "failed" if begun[-1].is_last else "retrying"

    @contextmanager
    def trying(self, receive_count: int | None, max_receives: int | None) -> Iterator[Path]:
        """Yield a folder that becomes `made` if the block succeeds.

        While the block runs, the page shows the job as started.
        """
        with tries.noted(self.folder / "tries", receive_count, max_receives) as draft:
            yield draft
            made = self.folder / "made"
            if not made.exists():
                draft.rename(made)

    def withdraw(self) -> None:
        """Withdraw the order: the job no longer exists."""
        (self.folder / "order.json").unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


def order(kind: str, size: int, upload: bytes = b"", upload_name: str = "") -> Job:
    """Make a new job and return it."""
    job = Job(str(uuid.uuid4()), kind, size, time.time(), upload_name)
    job.folder.mkdir(parents=True)
    job.upload.write_bytes(upload)
    terms = {name: value for name, value in asdict(job).items() if name != "id"}
    draft = job.folder / "order.draft"
    draft.write_text(json.dumps(terms))
    draft.rename(job.folder / "order.json")  # So no page reads half of it.
    return job


def get(job_id: str) -> Job:
    """Return a job.

    Raises:
        KeyError: There is no such job.
    """
    try:
        terms = json.loads((ROOT / job_id / "order.json").read_text())
    except FileNotFoundError:
        raise KeyError(f"no job {job_id} in {ROOT} (STUDIO_FOLDER)") from None
    return Job(job_id, **terms)


def newest_first() -> list[Job]:
    """Return all jobs, the newest first."""
    found = []
    for path in ROOT.glob("*/order.json"):
        with suppress(KeyError):  # It was withdrawn meanwhile.
            found.append(get(path.parent.name))
    return sorted(found, key=lambda job: job.ordered_at, reverse=True)
