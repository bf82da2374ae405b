"""The documents' lines for readers without an AWS account, run as printed."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.markdown import blocks, commands
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE

DJANGO, FLASK = "docs/django.md", "docs/flask.md"
SERVE = "python -m celery_sqs_heartbeat.testing.server --port 9324"
PRINTED = "127.0.0.1:9324"


def lines_after_serving(shell: Shell, document: str) -> list[str]:
    """Start a document's simulated SQS on a free port; return the lines for it that follow."""
    lines = commands(document)
    (start,) = (number for number, line in enumerate(lines) if line.startswith(SERVE))
    shell.start(lines[start].replace("9324", "0"))
    address = re.findall(r"http://(\S+)", shell.wait_for("http://"))[0]
    return [line.replace(PRINTED, address) for line in lines[start + 1 :]]


def write_all(shell: Shell, document: str) -> None:
    """Write a document's Python files under the names in their first lines."""
    for snippet in blocks(document, "python"):
        if not (first := snippet.splitlines()[0]).startswith("# "):
            continue
        file = shell.folder / first.removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(snippet)


def end_worker(job: subprocess.Popen[bytes]) -> None:
    job.terminate()
    assert job.wait(PATIENCE) == 0


@pytest.mark.thorough
def test_the_worker_of_the_flask_page_runs_a_task(shell: Shell) -> None:
    write_all(shell, FLASK)
    export, start, *_ = lines_after_serving(shell, FLASK)
    shell.export(export)
    worker = shell.start(f"{start} --concurrency 1 --loglevel INFO")
    shell.wait_for("messages of queue celery are kept")
    shell.run("python -c \"from make_celery import app; app.send_task('shop.greet', ['Ada'])\"")
    log = shell.wait_for("Ada, welcome to shop")
    assert "Traceback" not in log
    end_worker(worker)


@pytest.mark.thorough
def test_the_worker_of_the_django_page_runs_a_task(shell: Shell) -> None:
    write_all(shell, DJANGO)
    settings = shell.folder / "proj" / "settings.py"
    settings.write_text('SECRET_KEY = "x"\nINSTALLED_APPS = ["shop"]\n' + settings.read_text())
    (shell.folder / "shop").mkdir()
    (shell.folder / "shop" / "tasks.py").write_text(
        "from celery import shared_task\n\n\n@shared_task\ndef sell():\n    return 'sold'\n"
    )
    for package in ("proj", "shop"):
        (shell.folder / package / "__init__.py").touch()
    export, start, *_ = lines_after_serving(shell, DJANGO)
    shell.export(export)
    worker = shell.start(f"{start} --concurrency 1 --loglevel INFO")
    shell.wait_for("messages of queue celery are kept")
    shell.run("python -c \"from proj.celery import app; app.send_task('shop.tasks.sell')\"")
    log = shell.wait_for("succeeded in")
    assert "Traceback" not in log
    end_worker(worker)
