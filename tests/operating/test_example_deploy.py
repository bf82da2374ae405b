"""The example project's deploy files are consistent, as far as that shows without a cluster."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import venv
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from tests.support.example import FOLDER, TEMPLATE, allowed, pod, probe, readme_command
from tests.support.markdown import ROOT, blocks
from tests.support.waiting import PATIENCE
from tests.support.workers import SAFE_ENV

DEPLOY = FOLDER / "deploy"
#: The longest time that a worker may take to exit, in seconds, on every platform.
LONGEST_END = 630


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


@pytest.fixture
def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string((DEPLOY / "systemd" / "studio-worker.service").read_text())
    return parser["Service"]


@pytest.fixture
def dockerfile() -> dict[str, str]:
    """The last of each instruction."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return dict(re.findall(r"^([A-Z]+) (.+)$", text, re.MULTILINE))


def test_all_start_the_same_worker_and_end_it_the_same_way(
    unit: configparser.SectionProxy, dockerfile: dict[str, str]
) -> None:
    worker = ["celery", "-A", "django_site", "worker", "--heartbeat-sqs"]
    assert readme_command("celery -A django_site worker")[:5] == worker
    assert json.loads(dockerfile["CMD"])[:5] == worker
    program, *arguments = shlex.split(unit["ExecStart"])
    assert [Path(program).name, *arguments][:5] == worker
    worker[1:3] = ["--app=django_site"]
    assert pod("worker.yaml")["containers"][0]["args"][:4] == worker

    assert dockerfile["STOPSIGNAL"] == unit["KillSignal"] == "SIGTERM"
    # Celery's pool processes exit at SIGTERM, so only the main process must receive it.
    assert unit["KillMode"] == "mixed"
    assert int(unit["TimeoutStopSec"]) == LONGEST_END
    assert pod("worker.yaml")["terminationGracePeriodSeconds"] == LONGEST_END


def test_the_image_has_all_that_it_copies_and_does_not_run_as_root(
    dockerfile: dict[str, str],
) -> None:
    lines = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    assert all((ROOT / name).exists() for name in copied)
    packages = {str(path.parent.relative_to(ROOT)) for path in FOLDER.glob("*/__init__.py")}
    assert {*packages, *read_by_the_build()} <= copied
    assert dockerfile["USER"] == "10001"
    for name in ("worker.yaml", "site.yaml"):
        assert pod(name)["securityContext"]["runAsUser"] == 10001


def read_by_the_build() -> set[str]:
    """Return what `pip install .` reads in the root of a clone."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'^(?:readme|license-files|packages) = \[?"([^"]+)"', text, re.MULTILINE)
    return {"pyproject.toml", *named}


@pytest.mark.parametrize("name", ["worker.yaml", "site.yaml"])
def test_a_pod_names_only_what_the_manifests_make(name: str) -> None:
    shared = {(each["kind"], each["metadata"]["name"]) for each in manifests("shared.yaml")}
    spec = pod(name)
    (container,) = spec["containers"]
    assert ("ServiceAccount", spec["serviceAccountName"]) in shared
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert [("PersistentVolumeClaim", claim) in shared for claim in claims] == [True]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in spec["volumes"]
    }
    assert container["resources"]["limits"]["memory"]
    deployment = manifests(name)[0]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]


def test_the_variables_that_are_set_are_the_ones_that_are_read() -> None:
    sources = "".join(path.read_text() for path in FOLDER.glob("*/*.py"))
    read = set(re.findall(r'os\.environ\.get\(\s*"(\w+)"', sources)) | {"AWS_DEFAULT_REGION"}
    for name in ("worker.yaml", "site.yaml"):
        assert {variable["name"] for variable in pod(name)["containers"][0]["env"]} <= read
    unit = (DEPLOY / "systemd" / "studio-worker.service").read_text()
    (named,) = re.findall(r"^# (\w+(?:, \w+)+)\nEnvironmentFile", unit, re.MULTILINE)
    assert set(named.split(", ")) <= read


@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe"])
@pytest.mark.parametrize("status", [200, 503])
def test_the_probes_of_a_worker_use_its_status_page(kind: str, status: int) -> None:
    (container,) = pod("worker.yaml")["containers"]
    assert {"name": "STUDIO_STATUS", "value": "127.0.0.1:9808"} in container["env"]

    class StatusPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = {"livenessProbe": "/livez", "readinessProbe": "/readyz"}[kind]
            self.send_response(status if self.path == path else 404)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), StatusPage) as page:
        threading.Thread(target=page.handle_request, daemon=True).start()
        *program, code = probe(page.server_port, kind)
        # A busy machine may take longer to answer.
        patient = code.replace("timeout=5", f"timeout={PATIENCE}")
        assert patient != code
        done = subprocess.run([*program, patient], check=False)
    assert done.returncode == (0 if status == 200 else 1)


@pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")
def test_the_stack_makes_a_queue_that_gives_failures_to_its_dead_letter_queue() -> None:
    with mock_aws():
        regional = {"region_name": "eu-central-1"}
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", **regional}
        stacks, sqs = (boto3.client(service, **keys) for service in ("cloudformation", "sqs"))
        stacks.create_stack(StackName="studio", TemplateBody=TEMPLATE.read_text())
        told = {
            name: sqs.get_queue_attributes(
                QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"], AttributeNames=["All"]
            )["Attributes"]
            for name in ("studio", "studio-dead")
        }
    redrive = json.loads(told["studio"]["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == told["studio-dead"]["QueueArn"]
    assert int(redrive["maxReceiveCount"]) == 5
    # The README's server is the same queue.
    assert "studio:30:5" in readme_command("python -m celery_sqs_heartbeat.testing.server")
    assert told["studio"]["VisibilityTimeout"] == "30"
    kept = {name: int(each["MessageRetentionPeriod"]) for name, each in told.items()}
    assert kept["studio-dead"] > kept["studio"]


def test_a_worker_is_allowed_what_the_guide_to_production_says_and_a_site_less() -> None:
    (policy,) = blocks("docs/howto/production.md", "json")
    first, _ = json.loads(policy)["Statement"]
    assert allowed("WorkerPolicy") == set(first["Action"])
    assert allowed("SitePolicy") < allowed("WorkerPolicy")


def test_the_example_is_tested_with_what_it_asks_for() -> None:
    lines = (FOLDER / "requirements.txt").read_text().splitlines()
    comments = [line for line in lines if line.startswith("# ")]
    text = (ROOT / "pyproject.toml").read_text()
    (group,) = re.findall(r"^example = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    # pip takes the dot for the folder that it runs in: the root of the clone.
    assert {".", *re.findall(r'"(.+)"', group)} == set(lines) - set(comments)
    assert readme_command("pip install -r example_project/requirements.txt")
    assert "pip install -r example_project/requirements.txt" in comments[0]


@pytest.mark.thorough
def test_the_requirements_install_from_the_root_of_a_clone(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    command = readme_command("pip install -r example_project/requirements.txt")
    done = subprocess.run(
        [python, "-m", *command, "--no-deps", "--no-compile", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    code = """
from importlib import metadata, resources
folder = resources.files("celery_sqs_heartbeat.observe") / "grafana"
print(*sorted(path.name for path in folder.iterdir()))
print(*metadata.metadata("celery-sqs-heartbeat").get_all("Project-URL"), sep="\\n")
"""
    shown = subprocess.run(
        [python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    files, *urls = shown.stdout.splitlines()
    assert files == "alerts.yml dashboard.json"
    assert "Repository" in {url.partition(",")[0] for url in urls}


def test_the_sites_server_takes_its_arguments() -> None:
    (container,) = pod("site.yaml")["containers"]
    program, *arguments = container["args"]
    done = subprocess.run(
        [sys.executable, "-m", program, "--check-config", *arguments],
        cwd=FOLDER,
        env={**os.environ, **SAFE_ENV, "DJANGO_SECRET_KEY": "testing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
