"""Takes orders and shows what became of them."""

from __future__ import annotations

import uuid

from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseRedirect,
)
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from studio import jobs, orders


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the form and all jobs."""
    return render(request, "jobs.html", {"jobs": jobs.newest_first(), "kinds": list(orders.TASKS)})


@require_POST
def create(request: HttpRequest) -> HttpResponse:
    """Take an order."""
    upload = request.FILES.get("upload")
    try:
        job = orders.place(
            request.POST.get("kind", ""),
            request.POST.get("size", ""),
            upload.read(orders.MAX_UPLOAD_BYTES + 1) if upload else b"",
        )
    except ValueError as error:
        return HttpResponseBadRequest(str(error), content_type="text/plain")
    return HttpResponseRedirect(f"/#{job.id}")


@require_safe
def download(request: HttpRequest, job_id: uuid.UUID, name: str) -> FileResponse:
    """Send a file that a job made."""
    try:
        job = jobs.get(str(job_id))
    except KeyError:
        raise Http404 from None
    if name not in job.files:
        raise Http404
    return FileResponse((job.folder / "made" / name).open("rb"))
