"""The audit's own numbers: the documents state them, and the product follows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.sqs.clients import short_config
from tests.soak.delays import PAUSE_PART, call_patience, client_patience

SOAK = Path(__file__).parent
ROOT = SOAK.parents[1]
PRODUCT = "celery_sqs_heartbeat"
#: Modules that may name the product because they make the world that is audited, with the reason.
WORLD = {
    "proj.py": "the app of the workers installs the heartbeat",
    "server.py": "the simulated SQS is our own program",
    "intruder.py": "it reads the journal that the workers write",
}
#: The modules of an audit.
AUDIT = ("tests.soak.audit", "tests.soak.summary", "tests.soak.trace")
THRESHOLDS = [0.3, 0.5, 1.0, 4 / 3, 5 / 3, 2.0, 10.0, 30.0, 60.0, 100.0]


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("internals/leases.md", "never exceeds an eighth of the time that the lease has left"),
        ("internals/keeper.md", "timeouts are three tenths of the threshold, 0.5 to 5 s"),
        (
            "internals/keeper.md",
            "gives up a call after a third of its smallest threshold, 0.6 to 20 s",
        ),
        ("internals/keeper.md", "releases the messages that the worker held, within two seconds"),
        ("internals/keeper.md", "the worker starts another within a second"),
        (
            "internals/keeper.md",
            "activity for a second is killed, and replaced within another second",
        ),
        ("internals/keeper.md", "A keeper that has only started gets three"),
        ("internals/keeper.md", "With visibility timeouts of 5 seconds and more, no lease is lost"),
        ("internals/keeper.md", "0.5 s after a second death, then 1, 2, 5, 10 and 30 s"),
    ],
)
def test_the_documents_state_the_numbers(document: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / "docs" / document).read_text().split())


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_product_waits_for_answers_as_promised(threshold: float) -> None:
    assert policy.call_patience(threshold) == pytest.approx(call_patience(threshold))
    assert short_config(threshold).read_timeout == pytest.approx(client_patience(threshold))


@pytest.mark.parametrize("margin", [0.5, 2.0, 6.0, 30.0])
def test_the_product_repeats_extensions_as_soon_as_promised(margin: float) -> None:
    for attempts in (1, 3, 20):
        pause = policy.retry_delay(attempts, margin=margin, throttled=True, jitter=1.0)
        assert pause <= margin * PAUSE_PART


def test_an_audit_imports_nothing_from_the_product() -> None:
    code = f"import sys, {', '.join(AUDIT)}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if name.startswith(PRODUCT)] == []


def test_only_modules_of_the_audited_world_name_the_product() -> None:
    modules = [path for path in SOAK.glob("*.py") if not path.name.startswith("test_")]
    assert {path.name for path in modules if PRODUCT in path.read_text()} == {*WORLD}
