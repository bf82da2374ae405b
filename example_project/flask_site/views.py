"""Takes orders and shows what became of them."""

from __future__ import annotations

import uuid

from flask import Blueprint, Response, abort, redirect, render_template, request, send_file
from werkzeug.wrappers import Response as AnyResponse

from studio import jobs, orders

pages = Blueprint("pages", __name__)


@pages.get("/")
def index() -> str:
    """Show the form and all jobs."""
    return render_template("jobs.html", jobs=jobs.newest_first(), kinds=list(orders.TASKS))


@pages.post("/jobs")
def create() -> AnyResponse:
    """Take an order."""
    upload = request.files.get("upload")
    try:
        job = orders.place(
            request.form.get("kind", ""),
            request.form.get("size", ""),
            upload.read(orders.MAX_UPLOAD_BYTES + 1) if upload else b"",
        )
    except ValueError as error:
        return Response(str(error), status=400, content_type="text/plain")
    return redirect(f"/#{job.id}")


@pages.get("/jobs/<uuid:job_id>/<name>")
def download(job_id: uuid.UUID, name: str) -> Response:
    """Send a file that a job made."""
    try:
        job = jobs.get(str(job_id))
    except KeyError:
        abort(404)
    if name not in job.files:
        abort(404)
    return send_file(job.folder / "made" / name)
