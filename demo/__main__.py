"""Runs the same work under a stock worker and under one with --heartbeat-sqs.

Exit status: 0; 1 if a task of the heartbeat's worker was lost or had an avoidable duplicate; 2 if a
worker did not start; 130 if interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rich.console import Console

from demo import report
from demo.phase import Phase, Result
from demo.progress import Display
from demo.proj import JOURNAL
from demo.server import EmbeddedSqs
from demo.worker import ROOT, WorkerFailed

#: For this process and its workers, so that no call reaches a real account or a web proxy.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
KINDS = {"stock worker": (), "--heartbeat-sqs": ("--heartbeat-sqs",)}


def main() -> int:
    """Run the demo and return its exit status."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        os.environ.pop(name, None)
    os.environ.update(ENVIRONMENT)
    for hangup in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(hangup, _interrupt)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="sqs-heartbeat-demo-"))
    os.environ[JOURNAL] = str(folder / "journal")
    try:
        stock, heartbeat = _run(console, folder)
    except WorkerFailed as failure:
        console.print(f"\n{failure}\nFor the whole log, see {folder}", style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("\nInterrupted. All workers have exited.")
        shutil.rmtree(folder)
        return 130
    console.print(report.table(stock, heartbeat))
    console.print(report.verdict(stock, heartbeat), markup=False)
    if _write_report(Path(os.environ[JOURNAL])):
        console.print(report.about_the_page(heartbeat), markup=False)
    if report.twice(heartbeat) or report.lost(heartbeat):
        console.print(f"Logs and ledgers are in {folder}", markup=False)
        return 1
    shutil.rmtree(folder)
    return 0


def _run(console: Console, folder: Path) -> list[Result]:
    with EmbeddedSqs() as sqs, Display(console) as display:
        os.environ["CELERY_BROKER_URL"] = f"sqs://key:secret@{sqs.address}"
        return [
            Phase(
                name=title.strip("-").replace(" ", "-"),
                options=options,
                sqs=sqs,
                folder=folder,
                watch=display.row(title),
            ).run()
            for title, options in KINDS.items()
        ]


def _write_report(journal: Path) -> bool:
    """Write a report of our workers' journal, with the command that users run."""
    page = ROOT / "build" / "demo-report.html"
    page.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "celery", "-A", "demo.proj", "sqs-heartbeat", "report"]
    # If it fails, its error names what is missing. The demo has shown everything else by then.
    command += [str(journal), "--out", str(page)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
