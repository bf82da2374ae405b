"""The pages on platforms: each snippet parses, each command exists, and the numbers agree."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from kombu.transport import SQS
from moto import mock_aws

from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings import read_settings
from tests.support.environment import SAFE_ENV
from tests.support.insides import hide_shared_tasks
from tests.support.markdown import ROOT, blocks, commands, languages, typed_lines
from tests.support.warm.client import run_forked

NAMES = ["ecs", "eks", "heroku", "lambda", "localstack"]
#: The pages with workers that a platform starts and stops.
HOSTS = ["ecs", "eks", "heroku"]
#: The grace periods of Heroku and Fargate, in seconds.
HEROKU_GRACE, FARGATE_MOST = 30, 120
POLL_SECONDS = SQS.Channel.default_wait_time_seconds


def page(name: str) -> str:
    return f"docs/howto/{name}.md"


def text(name: str) -> str:
    return " ".join((ROOT / page(name)).read_text(encoding="utf-8").split())


@pytest.fixture(autouse=True)
def _no_shared_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the apps of later tests would have the pages' tasks.
    hide_shared_tasks(monkeypatch)


def conf(name: str) -> Any:
    """Return the configuration of a page's app."""
    (source,) = blocks(page(name), "python")
    names: dict[str, Any] = {"__name__": "proj"}
    exec(source, names)
    return names["app"].conf


def manifests() -> dict[str, dict[str, Any]]:
    (source,) = blocks(page("eks"), "yaml")
    return {document["kind"]: document for document in yaml.safe_load_all(source)}


def pod() -> Any:
    return manifests()["Deployment"]["spec"]["template"]["spec"]


def task_definition() -> Any:
    return json.loads(blocks(page("ecs"), "json")[0])


def procfile() -> dict[str, str]:
    (source,) = blocks(page("heroku"), "text")
    lines = source.splitlines()
    found = dict(re.findall(r"^(\w+): (.+)$", source, re.MULTILINE))
    assert len(found) == len(lines)
    return found


def lines_of(name: str) -> list[str]:
    """Return the commands of a page, each on one line."""
    return [line for block in blocks(page(name), "console") for line in typed_lines(block)]


def celery_commands(name: str) -> Iterator[list[str]]:
    """Yield every `celery` command of a page, as words."""
    for words in map(shlex.split, lines_of(name)):
        # On its own, or behind the `--` of a command that runs it elsewhere.
        start = words.index("--") + 1 if "--" in words else 0
        if words[start] == "celery":
            yield words[start:]
    yield from (shlex.split(code) for code in re.findall(r"`(celery -A [^`]+)`", text(name)))
    if name == "heroku":
        yield from map(shlex.split, procfile().values())
    if name == "eks":
        yield pod()["containers"][0]["command"]
    if name == "ecs":
        yield task_definition()["containerDefinitions"][0]["command"]
        yield json.loads(blocks(page("ecs"), "json")[1])["containerOverrides"][0]["command"]


@pytest.mark.parametrize("name", NAMES)
def test_every_snippet_parses(name: str) -> None:
    assert languages(page(name)) <= {"console", "json", "python", "text", "yaml"}
    for source in blocks(page(name), "python"):
        compile(source, page(name), "exec")
    for source in blocks(page(name), "json"):
        json.loads(source)
    for source in blocks(page(name), "yaml"):
        assert all(yaml.safe_load_all(source))
    assert all(map(shlex.split, lines_of(name)))


@pytest.fixture
def proj(tmp_path: Path) -> Path:
    """A folder with the app of the pages."""
    (tmp_path / "proj.py").write_text(blocks(page("localstack"), "python")[0])
    return tmp_path


def shows_help(command: Sequence[str], folder: Path) -> bool:
    """Return whether Celery accepts a command. It checks the other words before `--help`."""
    words = [sys.executable, "-m", *command, "--help"]
    done = run_forked(words, env={**os.environ, **SAFE_ENV}, cwd=folder)
    return done.returncode == 0 and "Usage: " in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_celery_takes_every_command(name: str, proj: Path) -> None:
    found = {tuple(command) for command in celery_commands(name)}
    assert found
    assert [command for command in sorted(found) if not shows_help(command, proj)] == []


def test_celery_refuses_an_option_that_does_not_exist(proj: Path) -> None:
    assert not shows_help(["celery", "-A", "proj", "sqs-heartbeat", "iam", "--consumer"], proj)


@pytest.mark.parametrize("name", NAMES)
def test_the_aws_cli_has_every_option(name: str) -> None:
    of_the_cli = {"CliInputJson", "CliBinaryFormat", "EndpointUrl"}
    for line in lines_of(name):
        program, *words = shlex.split(line)
        if program != "aws" or "tail" in words:
            continue  # Only the command line has `aws logs tail`.
        pairs = list(zip(["", *words], words, strict=False))
        options = [word for word in words if word.startswith("--")]
        service, operation, *_ = [b for a, b in pairs if a not in options and b not in options]
        model = boto3.client(service, region_name="us-east-1").meta.service_model
        members = model.operation_model(camel(operation)).input_shape.members
        known = {member[0].upper() + member[1:] for member in members}
        assert {camel(option) for option in options} <= known | of_the_cli, line


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.strip("-").split("-"))


@pytest.mark.parametrize("name", HOSTS)
def test_the_settings_are_taken_and_the_page_repeats_the_facts_of_others(name: str) -> None:
    settings = conf(name)
    read = read_settings(settings.get, names=settings.keys())
    assert str(read.journal).startswith("s3://")
    assert "takes 45 to 60 MB" in text(name)
    memory = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert "45 to 60 MB" in memory
    assert f"{FLUSH_SECONDS:g} seconds" in text(name)


def test_a_dyno_has_time_for_a_soft_shutdown() -> None:
    soft = conf("heroku").worker_soft_shutdown_timeout
    assert f"SIGKILL after {HEROKU_GRACE} seconds" in text("heroku")
    assert f"Running tasks have {soft} seconds." in text("heroku")
    assert f"Together that is {soft + FLUSH_SECONDS:g} of the {HEROKU_GRACE} s" in text("heroku")
    assert soft + FLUSH_SECONDS < HEROKU_GRACE
    assert any("REMAP_SIGTERM=SIGQUIT" in command for command in commands(page("heroku")))
    assert "--concurrency" in procfile()["worker"]


def test_ecs_takes_the_task_definition_and_gives_time_for_a_soft_shutdown() -> None:
    definition = task_definition()
    with mock_aws():
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        client = boto3.client("ecs", region_name="us-east-1", **keys)
        client.register_task_definition(**definition)
    (container,) = definition["containerDefinitions"]
    soft = conf("ecs").worker_soft_shutdown_timeout
    assert f"at most {FARGATE_MOST} seconds" in text("ecs")
    assert f"The soft shutdown of {soft} seconds" in text("ecs")
    assert soft + FLUSH_SECONDS < container["stopTimeout"] <= FARGATE_MOST
    assert {"name": "REMAP_SIGTERM", "value": "SIGQUIT"} in container["environment"]
    assert container["linuxParameters"] == {"initProcessEnabled": True}
    (override,) = json.loads(blocks(page("ecs"), "json")[1])["containerOverrides"]
    assert override["name"] == container["name"]
    (tail,) = (command for command in commands(page("ecs")) if "logs tail" in command)
    assert shlex.split(tail)[3] == container["logConfiguration"]["options"]["awslogs-group"]


def test_a_pod_has_time_for_its_longest_task_and_the_role_of_the_page() -> None:
    spec, account = pod(), manifests()["ServiceAccount"]["metadata"]
    longest = conf("eks").task_time_limit
    assert spec["terminationGracePeriodSeconds"] >= longest + POLL_SECONDS + FLUSH_SECONDS
    assert f"the last long poll ({POLL_SECONDS} seconds)" in text("eks")
    assert spec["serviceAccountName"] == account["name"]
    role = account["annotations"]["eks.amazonaws.com/role-arn"]
    (line,) = (line for line in lines_of("eks") if "create-pod-identity-association" in line)
    words = shlex.split(line)
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert (given["--service-account"], given["--role-arn"]) == (account["name"], role)
    deployment = manifests()["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    (container,) = spec["containers"]
    assert [each["name"] for each in spec["volumes"]] == [
        each["name"] for each in container["volumeMounts"]
    ]
    assert set(container["resources"]["limits"]) == {"memory"}
    name = f"deploy/{deployment['metadata']['name']} "
    assert all(name in f"{line} " for line in commands(page("eks")) if "kubectl" in line)


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("ecs", "healthCheck", "/livez"),
        ("eks", "livenessProbe", "/livez"),
        ("eks", "readinessProbe", "/readyz"),
    ],
)
@pytest.mark.parametrize("status", [200, 503])
def test_the_health_check_follows_the_status_page(
    name: str, kind: str, path: str, status: int
) -> None:
    if name == "ecs":
        first, *command = task_definition()["containerDefinitions"][0][kind]["command"]
        assert first == "CMD"
    else:
        command = pod()["containers"][0][kind]["exec"]["command"]
    program, option, code = command
    assert program == "python"
    address = conf(name).sqs_heartbeat_status
    assert f"http://{address}{path}" in code

    class StatusPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == path else 404)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), StatusPage) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        code = code.replace(address, f"127.0.0.1:{server.server_port}")
        env = {**os.environ, **SAFE_ENV}
        done = subprocess.run(
            [sys.executable, option, code], env=env, check=False, capture_output=True
        )
    assert done.returncode == (0 if status == 200 else 1)
