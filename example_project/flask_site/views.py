"""Takes orders and shows their jobs."""

from __future__ import annotations

import uuid
from pathlib import Path

from flask import Blueprint, Response, abort, redirect, render_template, request, send_file
from werkzeug.wrappers import Response as AnyResponse

from studio import jobs, orders, pages

site = Blueprint("site", __name__, template_folder=Path(pages.__file__).parent / "templates")


@site.get("/")
def index() -> str:
    """Show the form and the jobs."""
    return render_template("jobs.html", **pages.index(request.args.get("page")))


@site.get("/table")
def table() -> str:
    """Show only the jobs, so that the page can refresh them."""
    return render_template("table.html", **pages.table(request.args.get("page")))


@site.post("/jobs")
def create() -> AnyResponse:
    """Take an order."""
    kind, size = request.form.get("kind", ""), request.form.get("size", "")
    upload = request.files.get("upload")
    content = upload.read(orders.MAX_UPLOAD_BYTES + 1) if upload else b""
    name = upload.filename or "" if upload else ""
    try:
        job = orders.place(kind, size, content, name)
    except orders.Refused as error:
        terms = pages.index(error=str(error), kind=kind, size=size)
        return Response(render_template("jobs.html", **terms), status=error.status)
    return redirect(f"/#{job.id}")


@site.get("/jobs/<uuid:job_id>")
def job(job_id: uuid.UUID) -> str:
    """Show all files that a job made."""
    try:
        terms = pages.job(str(job_id), request.args.get("page"))
    except KeyError:
        abort(404)
    return render_template("job.html", **terms)


@site.get("/jobs/<uuid:job_id>/<name>")
def download(job_id: uuid.UUID, name: str) -> Response:
    """Send a file that a job made."""
    try:
        job = jobs.get(str(job_id))
    except KeyError:
        abort(404)
    if name not in job.files:
        abort(404)
    return send_file(job.folder / "made" / name)
