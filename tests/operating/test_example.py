"""The example project runs by the commands of its README, and its deploy files are valid."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from tests.support.markdown import ROOT, blocks, commands
from tests.support.shell import Shell, direct_session
from tests.support.waiting import PATIENCE, wait_until

FOLDER = ROOT / "example_project"
DEPLOY = FOLDER / "deploy"
TEMPLATE = DEPLOY / "cloudformation" / "queue.yaml"
#: How the README's commands for the sites begin, and those for their workers.
SITES = {
    "django": ("python manage.py runserver", "celery -A django_site worker"),
    "flask": ("flask --app flask_site run", "celery -A flask_site.worker worker"),
}
#: The longest time that a worker may take to exit, in seconds, on every platform.
LONGEST_END = 630


def readme(beginning: str) -> str:
    """Return the README's one command that begins so."""
    lines = commands("example_project/README.md")
    (found,) = (line for line in lines if line.startswith(beginning))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("kind", SITES)
def test_an_order_on_a_site_is_made_by_its_worker(kind: str, shell: Shell) -> None:
    def start(command: str) -> None:
        shell.start(f"env -C {FOLDER} {command}")

    def addresses(count: int) -> list[str]:
        return re.findall(r"http://(127\.0\.0\.1:\d+)", shell.wait_for("http://127.0.0.1:", count))

    site, worker = map(readme, SITES[kind])
    shell.export(f"export STUDIO_FOLDER={shell.folder}/outputs")
    start(readme("python -m celery_sqs_heartbeat.testing.server").replace("9324", "0"))
    export = readme("export CELERY_BROKER_URL=sqs://any")
    shell.export(export.replace("127.0.0.1:9324", addresses(1)[0]))
    start(site.replace("8000", "0"))
    url = f"http://{addresses(2)[1]}"
    start(worker)
    with direct_session() as session:

        def order(upload: bytes) -> str:
            token = re.findall(r'name="(csrfmiddlewaretoken)" value="(\w+)"', page())
            answer = session.post(
                f"{url}/jobs",
                data={**dict(token), "kind": "csv_totals"},
                files={"upload": ("orders <b>.csv", upload)},
                timeout=PATIENCE,
            )
            assert answer.status_code == 200, answer.text
            return answer.url.rpartition("#")[2]

        def page() -> str:
            return session.get(url, timeout=PATIENCE).text

        def wait_for(job: str, state: str) -> str:
            row = re.compile(rf'<tr id="{job}" data-state="{state}">.*?</tr>', re.DOTALL)
            wait_until(lambda: row.search(page()), tell=page)
            return row.findall(page())[0]

        good = order(b"region,amount\nnorth,1.50\nsouth,2.00\nnorth,3.25\n")
        bad = order(b"region,amount\nnorth,a lot\n")
        row = wait_for(good, "done")
        assert "csv_totals, orders &lt;b&gt;.csv" in row
        (link,) = re.findall(r'href="(/jobs/[^"]+)"', row)
        made = session.get(url + link, timeout=PATIENCE).text.split()
        assert made == ["region,orders,amount", "north,2,4.75", "south,1,2.00"]
        # It is retried, which the page shows with the reason.
        assert "line 2 is not an order" in wait_for(bad, "retrying")


class _StackLoader(yaml.SafeLoader):
    """Reads CloudFormation's short forms, such as `!Ref`, as their plain arguments."""


def _short_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


_StackLoader.add_multi_constructor("!", _short_form)


def allowed(policy: str) -> set[str]:
    """Return the actions that a policy of the template allows."""
    resources = yaml.load(TEMPLATE.read_text(), _StackLoader)["Resources"]
    document = resources[policy]["Properties"]["PolicyDocument"]
    return {action for statement in document["Statement"] for action in statement["Action"]}


def pod(manifest: str) -> dict[str, Any]:
    """Return the pod of a Kubernetes manifest's first deployment."""
    text = (DEPLOY / "kubernetes" / manifest).read_text()
    return dict(next(yaml.safe_load_all(text))["spec"]["template"]["spec"])


def test_all_platforms_start_the_same_worker_and_end_it_the_same_way() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string((DEPLOY / "systemd" / "studio-worker.service").read_text())
    unit = parser["Service"]
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    dockerfile = dict(re.findall(r"^([A-Z]+) (.+)$", text, re.MULTILINE))
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied)

    worker = ["celery", "-A", "django_site", "worker", "--heartbeat-sqs"]
    assert (
        shlex.split(readme(SITES["django"][1]))[:5] == json.loads(dockerfile["CMD"])[:5] == worker
    )
    program, *arguments = shlex.split(unit["ExecStart"])
    assert [Path(program).name, *arguments][:5] == worker
    worker[1:3] = ["--app=django_site"]
    assert pod("worker.yaml")["containers"][0]["args"][:4] == worker

    assert dockerfile["STOPSIGNAL"] == unit["KillSignal"] == "SIGTERM"
    # Celery's pool processes exit at SIGTERM, so only the main process must receive it.
    assert unit["KillMode"] == "mixed"
    assert int(unit["TimeoutStopSec"]) == LONGEST_END
    assert pod("worker.yaml")["terminationGracePeriodSeconds"] == LONGEST_END


def test_the_probes_of_a_worker_use_its_status_page() -> None:
    (container,) = pod("worker.yaml")["containers"]
    assert {"name": "STUDIO_STATUS", "value": "127.0.0.1:9808"} in container["env"]
    for kind, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        program, *_, code = container[kind]["exec"]["command"]
        compile(code, kind, "exec")
        assert program == "python"
        assert '"127.0.0.1", 9808' in code
        assert f'"GET", "{path}"' in code


@pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")
def test_the_stack_makes_the_queue_of_the_readme_and_allows_what_production_needs() -> None:
    with mock_aws():
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        stacks, sqs = (
            boto3.client(service, region_name="eu-central-1", **keys)
            for service in ("cloudformation", "sqs")
        )
        stacks.create_stack(StackName="studio", TemplateBody=TEMPLATE.read_text())
        queue, dead = (
            sqs.get_queue_attributes(
                QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"], AttributeNames=["All"]
            )["Attributes"]
            for name in ("studio", "studio-dead")
        )
    redrive = json.loads(queue["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == dead["QueueArn"]
    made = f"studio:{queue['VisibilityTimeout']}:{redrive['maxReceiveCount']}"
    assert made in readme("python -m celery_sqs_heartbeat.testing.server")
    assert int(dead["MessageRetentionPeriod"]) > int(queue["MessageRetentionPeriod"])
    (policy,) = blocks("docs/howto/production.md", "json")
    assert allowed("SitePolicy") < allowed("WorkerPolicy")
    assert allowed("WorkerPolicy") == set(json.loads(policy)["Statement"][0]["Action"])


def test_the_example_is_tested_with_what_it_asks_for() -> None:
    lines = (FOLDER / "requirements.txt").read_text().splitlines()
    text = (ROOT / "pyproject.toml").read_text()
    (group,) = re.findall(r"^example = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    # pip takes the dot for the folder that it runs in: the root of the clone.
    wanted = {line for line in lines if not line.startswith("# ")}
    assert wanted == {".", *re.findall(r'"(.+)"', group)}
    assert readme("pip install -r example_project/requirements.txt")
