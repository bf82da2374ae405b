"""Takes orders and shows their jobs."""

from __future__ import annotations

import uuid

from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
)
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from studio import jobs, orders, pages


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the form and the jobs."""
    return render(request, "jobs.html", pages.index(request.GET.get("page")))


@require_safe
def table(request: HttpRequest) -> HttpResponse:
    """Show only the jobs, so that the page can refresh them."""
    return render(request, "table.html", pages.table(request.GET.get("page")))


@require_POST
def create(request: HttpRequest) -> HttpResponse:
    """Take an order."""
    kind, size = request.POST.get("kind", ""), request.POST.get("size", "")
    upload = request.FILES.get("upload")
    content = upload.read(orders.MAX_UPLOAD_BYTES + 1) if upload else b""
    name = upload.name if upload else ""
    try:
        job = orders.place(kind, size, content, name)
    except orders.Refused as error:
        terms = pages.index(error=str(error), kind=kind, size=size)
        return render(request, "jobs.html", terms, status=error.status)
    return HttpResponseRedirect(f"/#{job.id}")


@require_safe
def job(request: HttpRequest, job_id: uuid.UUID) -> HttpResponse:
    """Show all files that a job made."""
    try:
        terms = pages.job(str(job_id), request.GET.get("page"))
    except KeyError:
        raise Http404 from None
    return render(request, "job.html", terms)


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
