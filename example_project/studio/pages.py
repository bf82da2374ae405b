"""The values of both sites' pages. Django's and Jinja's engines share the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from studio import jobs, orders

#: How many jobs, or files of a job, one page shows.
PAGE_LENGTH = 50
#: How many files of a job the list of jobs shows.
FEW = 4
#: How often the page refreshes the list of jobs.
REFRESH_SECONDS = 5
HINTS = {
    "retrying": "SQS delivers it again when its delay or timeout has passed",
    "failed": "its message goes to the dead-letter queue",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a long list. Page numbers start at 1; 0 means that there is no page."""

    items: Sequence[Any]
    number: int
    count: int

    @classmethod
    def of(cls, everything: Sequence[Any], asked: str | None) -> Page:
        """Return the requested page, or the nearest one."""
        count = max(1, -(-len(everything) // PAGE_LENGTH))
        number = int(asked) if asked and asked.isdecimal() and len(asked) < 9 else 1
        number = min(max(number, 1), count)
        return cls(everything[(number - 1) * PAGE_LENGTH :][:PAGE_LENGTH], number, count)

    @property
    def previous(self) -> int:
        """The number of the page before."""
        return self.number - 1

    @property
    def next(self) -> int:
        """The number of the page after."""
        return self.number + 1 if self.number < self.count else 0


@dataclass(frozen=True, slots=True)
class Row:
    """A job in the list."""

    job: jobs.Job

    @property
    def title(self) -> str:
        """What was ordered."""
        job = self.job
        detail = job.upload_name if job.kind in orders.WITH_UPLOAD else job.size
        return f"{job.kind}, {detail}" if detail else job.kind

    @property
    def hint(self) -> str:
        """An explanation of its state, if it needs one."""
        return HINTS.get(self.job.state, "")

    @property
    def files(self) -> list[str]:
        """The first files that it made."""
        return self.job.files[:FEW]

    @property
    def more(self) -> int:
        """How many files `files` leaves out."""
        return max(0, len(self.job.files) - FEW)


def table(asked: str | None) -> dict[str, Any]:
    """Return the values for table.html."""
    page = Page.of(jobs.newest_first(), asked)
    return {"page": Page([Row(job) for job in page.items], page.number, page.count)}


def index(
    asked: str | None = None, *, error: str = "", kind: str = "", size: str = ""
) -> dict[str, Any]:
    """Return the values for jobs.html: the form with its error, and the jobs."""
    return {
        **table(asked),
        "error": error,
        "kind": kind,
        "size": size or "10",
        "kinds": list(orders.TASKS),
        "max_size": orders.MAX_SIZE,
        "refresh_seconds": REFRESH_SECONDS,
    }


def job(job_id: str, asked: str | None) -> dict[str, Any]:
    """Return the values for job.html: all files that a job made.

    Raises:
        KeyError: There is no such job.
    """
    found = jobs.get(job_id)
    return {"row": Row(found), "page": Page.of(found.files, asked)}
