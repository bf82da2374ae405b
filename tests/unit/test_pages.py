"""What the documents name exists, what they show is accepted as written, and numbers agree."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore import xform_name
from botocore.validate import ParamValidator
from celery import Celery
from kombu.transport import SQS

from celery_sqs_heartbeat import ReleaseMessage
from celery_sqs_heartbeat.cli.app import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.examination import FINDINGS
from celery_sqs_heartbeat.cli.queue_rules import i218, w032
from celery_sqs_heartbeat.cli.queues import QueueFacts
from celery_sqs_heartbeat.current.current_message import asked_delay
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.settings import NAMES, read_settings
from celery_sqs_heartbeat.settings.release_delay import (
    NAMED,
    ExponentialDelay,
    Failure,
    QueueInfo,
    choose_delay,
)
from tests.support.environment import SAFE_ENV
from tests.support.insides import hide_shared_tasks
from tests.support.markdown import ROOT, blocks, commands, typed_lines
from tests.support.tasks import run_task
from tests.support.warm.client import run_forked
from tests.unit.asking import MESSAGE, Worker

PACKAGE, DOCS = ROOT / "celery_sqs_heartbeat", ROOT / "docs"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "example_project/README.md")
PAGES = [*(str(page.relative_to(ROOT)) for page in sorted(DOCS.rglob("*.md"))), *OUTSIDE]
#: The pages with workers that a platform starts and stops, and the others on platforms.
HOSTS = ["ecs", "eks", "heroku"]
PLATFORMS = [*HOSTS, "lambda", "localstack"]
#: The grace periods of Heroku and Fargate, in seconds.
HEROKU_GRACE, FARGATE_MOST = 30, 120
POLL_SECONDS = SQS.Channel.default_wait_time_seconds
#: Commands that keep their terminal until they are stopped.
CONTINUES = re.compile(
    r"celery .*\bworker\b|runserver|flask .*\brun\b|testing\.server|--watch|http\.server"
)
#: How the commands that have our options begin.
COMMANDS = runpy.run_path(str(DOCS / "make_commands.py"))["commands"]()
#: The message path's parts, whose modules have different names.
MESSAGE_PATH = (
    *("transport", "receiving", "worker", "consumer", "link", "keeper", "leases", "sqs"),
    *("current", "journal", "observe", "settings", "common"),
)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def flat(page: str) -> str:
    return " ".join(read(page).split())


def queue_of(name: str, max_receive_count: int) -> QueueFacts:
    policy = json.dumps({"maxReceiveCount": max_receive_count})
    return QueueFacts(name=name, attributes={"RedrivePolicy": policy})


def lines_of(page: str) -> list[str]:
    """Return the commands of a page, each on one line."""
    return [line for block in blocks(page, "console") for line in typed_lines(block)]


def words_of(line: str) -> list[str]:
    """Return a command's words, without the rest of a pipeline."""
    return shlex.split(line.partition(" | ")[0], comments=True)


@pytest.mark.parametrize("page", PAGES)
def test_the_snippets_of_a_page_can_be_read_and_name_settings_and_findings_that_exist(
    page: str,
) -> None:
    text, known = read(page), {f"sqs_heartbeat_{name}" for name in NAMES}
    for snippet in blocks(page, "python"):
        compile(snippet, page, "exec")
        named = re.findall(r"\bconf\.(sqs_heartbeat_\w+)|^    (sqs_heartbeat_\w+)=", snippet, re.M)
        assert {name for pair in named for name in pair if name} <= known
    for snippet in blocks(page, "json"):
        json.loads(snippet)
    for snippet in blocks(page, "yaml"):
        assert list(yaml.safe_load_all(snippet))
    assert {*re.findall(r"SQSHB-\w\d+", text)} <= {finding.id for finding in FINDINGS.values()}
    for block in blocks(page, "console"):
        *before, last = typed_lines(block)
        assert shlex.split(last)
        assert [line for line in before if CONTINUES.search(line)] == []
    if page in OUTSIDE:
        # mkdocs checks the links of the site.
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s:]+)\)", text)]
        assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_our_commands_are_accepted_as_written() -> None:
    for page in PAGES:
        for line in lines_of(page):
            words = words_of(line)
            for start, command in COMMANDS.items():
                begin = shlex.split(start)
                if words[: len(begin)] == begin and "worker" not in begin:
                    command.make_context(start, words[len(begin) :])


def test_the_commands_of_aws_use_operations_and_parameters_that_exist() -> None:
    of_the_cli, checked = {"cli-input-json", "cli-binary-format", "endpoint-url"}, 0
    for page in PAGES:
        for line in lines_of(page):
            program, *words = words_of(line)
            if program != "aws" or {"tail", "deploy"} & {*words}:
                continue  # Only the command line has `aws logs tail`, for example.
            pairs = list(zip(["", *words], words, strict=False))
            service, operation, *_ = [b for a, b in pairs if "--" not in a and "--" not in b]
            model = botocore.session.get_session().get_service_model(service)
            names = {xform_name(name, "-"): name for name in model.operation_names}
            members = model.operation_model(names[operation]).input_shape.members
            known = {xform_name(name, "-") for name in members} | of_the_cli
            assert {word[2:] for word in words if word.startswith("--")} <= known, line
            if (option := "--attribute-names") in words:
                asked = words[words.index(option) + 1 :]
                assert {*asked} <= {*members["AttributeNames"].member.enum}, line
            checked += 1
    assert checked > 10


def test_each_question_of_the_faq_has_an_answer_that_ends_with_a_command_that_checks_it() -> None:
    parts = re.split(r"^###? (.+)\n", read("docs/faq.md"), flags=re.MULTILINE)
    questions = re.findall(r"^### (.+)$", read("docs/faq.md"), re.MULTILINE)
    # The text between a section's heading and its first question is not an answer.
    answers = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))
    assert [question for question, answer in answers.items() if answer] == questions
    assert len(questions) > 20
    assert [question for question in questions if not question.endswith("?")] == []
    for question in questions:
        assert re.search(r"^```console\n\$ [^\0]+\n```\Z", answers[question], re.M), question
        assert answers[question].count("```") == 2


def test_a_decision_is_dated_short_in_its_form_and_listed_the_newest_first() -> None:
    pages = [page for page in sorted((DOCS / "decisions").glob("*.md")) if page.stem != "index"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert text.startswith("# ")
        assert text.splitlines()[2] == f"*{page.name[:10]}*"
        assert [each for each in headings if each != "What we considered"] == [
            *("Context", "Decision", "Consequences")
        ], page
        assert headings[0] == "Context"
        # A screen.
        assert len(text.splitlines()) <= 45, page
    text = read("docs/decisions/index.md")
    rows = re.findall(r"^\| ([\d-]+) \| \w+ \| \[(.*)\]\((.*)\) \|$", text, re.MULTILINE)
    assert sorted(name for _, _, name in rows) == [page.name for page in pages]
    assert [date for date, _, _ in rows] == sorted((date for date, _, _ in rows), reverse=True)
    for date, title, name in rows:
        assert name.startswith(date)
        assert read(f"docs/decisions/{name}").startswith(f"# {title}\n")


def test_the_page_of_the_architecture_names_the_existing_parts_in_the_order_of_the_picture() -> (
    None
):
    text = read("docs/architecture.md")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    (line,) = re.findall(r"^common < .*$", text, re.MULTILINE)
    drawing = runpy.run_path(str(DOCS / "draw_architecture.py"))
    assert tuple(tuple(step.split(", ")) for step in line.split(" < ")) == drawing["ORDER"]
    assert read("docs/architecture.svg") == drawing["draw"](), "run docs/draw_architecture.py"
    drawn = runpy.run_path(str(DOCS / "draw_lease.py"))["draw"]()
    assert read("docs/lease.svg") == drawn, "run docs/draw_lease.py"


def test_the_paths_that_pages_for_contributors_name_are_there() -> None:
    pages = [page for page in PAGES if page.startswith("docs/internals/")]
    named = {
        (page, path)
        for page in (*pages, "CONTRIBUTING.md", "docs/architecture.md")
        for path in re.findall(r"`((?:\w+/)+\w+\.py|(?:tests|docs|cli)/[\w/.]*)`", read(page))
    }
    assert len(named) > 30
    bases = (ROOT, PACKAGE)
    gone = [each for each in named if not any((base / each[1]).exists() for base in bases)]
    assert gone == []


def test_no_two_modules_on_a_messages_path_have_the_same_name() -> None:
    folders = [PACKAGE / folder for folder in MESSAGE_PATH]
    names = Counter(path.name for folder in folders for path in folder.rglob("[!_]*.py"))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > len(MESSAGE_PATH)


def page_of(name: str) -> str:
    return f"docs/howto/{name}.md"


def conf(name: str) -> Any:
    """Return the configuration of a page's app."""
    names: dict[str, Any] = {"__name__": "proj"}
    exec(blocks(page_of(name), "python")[0], names)
    return names["app"].conf


def manifests() -> dict[str, Any]:
    (source,) = blocks(page_of("eks"), "yaml")
    return {document["kind"]: document for document in yaml.safe_load_all(source)}


def pod() -> Any:
    return manifests()["Deployment"]["spec"]["template"]["spec"]


def task_definition() -> Any:
    return json.loads(blocks(page_of("ecs"), "json")[0])


def procfile() -> dict[str, str]:
    (source,) = blocks(page_of("heroku"), "text")
    return dict(re.findall(r"^(\w+): (.+)$", source, re.MULTILINE))


def celery_commands(name: str) -> Iterator[list[str]]:
    """Yield every `celery` command of a page, as words."""
    for words in map(shlex.split, lines_of(page_of(name))):
        # On its own, or behind the `--` of a command that runs it elsewhere.
        start = words.index("--") + 1 if "--" in words else 0
        if words[start] == "celery":
            yield words[start:]
    found = re.findall(r"`(celery -A [^`]+)`", flat(page_of(name)))
    yield from map(shlex.split, [*found, *(procfile().values() if name == "heroku" else ())])
    if name == "eks":
        yield pod()["containers"][0]["command"]
    if name == "ecs":
        yield task_definition()["containerDefinitions"][0]["command"]
        yield json.loads(blocks(page_of("ecs"), "json")[1])["containerOverrides"][0]["command"]


def test_celery_takes_every_command_of_the_pages_on_platforms(tmp_path: Path) -> None:
    (tmp_path / "proj.py").write_text(blocks(page_of("localstack"), "python")[0])

    def is_taken(command: tuple[str, ...]) -> bool:
        # Celery checks the other words before `--help`.
        words = [sys.executable, "-m", *command, "--help"]
        done = run_forked(words, env={**os.environ, **SAFE_ENV}, cwd=tmp_path)
        return done.returncode == 0 and "Usage: " in done.stdout

    found = {tuple(command) for name in PLATFORMS for command in celery_commands(name)}
    assert len(found) > len(PLATFORMS)
    assert [command for command in sorted(found) if not is_taken(command)] == []
    assert not is_taken(("celery", "-A", "proj", "sqs-heartbeat", "iam", "--consumer"))


@pytest.fixture
def _no_shared_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the apps of later tests would have the pages' tasks.
    hide_shared_tasks(monkeypatch)


@pytest.mark.usefixtures("_no_shared_tasks")
@pytest.mark.parametrize("name", HOSTS)
def test_the_settings_are_taken_and_the_page_repeats_the_facts_of_others(name: str) -> None:
    settings, text = conf(name), flat(page_of(name))
    read = read_settings(settings.get, names=settings.keys())
    assert str(read.journal).startswith("s3://")
    assert "takes 45 to 60 MB" in text
    assert "45 to 60 MB" in flat("docs/operations.md")
    assert f"{FLUSH_SECONDS:g} seconds" in text


@pytest.mark.usefixtures("_no_shared_tasks")
def test_the_platforms_give_time_for_the_end_of_a_worker() -> None:
    heroku, soft = flat(page_of("heroku")), conf("heroku").worker_soft_shutdown_timeout
    assert f"SIGKILL after {HEROKU_GRACE} seconds" in heroku
    assert f"Running tasks have {soft} seconds." in heroku
    assert f"Together that is {soft + FLUSH_SECONDS:g} of the {HEROKU_GRACE} s" in heroku
    assert soft + FLUSH_SECONDS < HEROKU_GRACE
    assert any("REMAP_SIGTERM=SIGQUIT" in each for each in commands(page_of("heroku")))
    assert "--concurrency" in procfile()["worker"]

    ecs, soft = flat(page_of("ecs")), conf("ecs").worker_soft_shutdown_timeout
    (container,) = task_definition()["containerDefinitions"]
    assert f"at most {FARGATE_MOST} seconds" in ecs
    assert f"The soft shutdown of {soft} seconds" in ecs
    assert soft + FLUSH_SECONDS < container["stopTimeout"] <= FARGATE_MOST
    assert {"name": "REMAP_SIGTERM", "value": "SIGQUIT"} in container["environment"]

    longest = conf("eks").task_time_limit
    assert pod()["terminationGracePeriodSeconds"] >= longest + POLL_SECONDS + FLUSH_SECONDS
    assert f"the last long poll ({POLL_SECONDS} seconds)" in flat(page_of("eks"))


def test_ecs_takes_the_task_definition_and_names_are_the_same_throughout_a_page() -> None:
    definition = task_definition()
    model = botocore.session.get_session().get_service_model("ecs")
    shape = model.operation_model("RegisterTaskDefinition").input_shape
    assert ParamValidator().validate(definition, shape).generate_report() == ""
    (container,) = definition["containerDefinitions"]
    assert container["linuxParameters"] == {"initProcessEnabled": True}
    (override,) = json.loads(blocks(page_of("ecs"), "json")[1])["containerOverrides"]
    assert override["name"] == container["name"]

    deployment, account = manifests()["Deployment"], manifests()["ServiceAccount"]["metadata"]
    assert pod()["serviceAccountName"] == account["name"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    name = f"deploy/{deployment['metadata']['name']} "
    assert all(name in f"{each} " for each in commands(page_of("eks")) if "kubectl" in each)


@pytest.mark.usefixtures("_no_shared_tasks")
def test_the_health_checks_ask_the_status_page() -> None:
    (container,) = task_definition()["containerDefinitions"]
    checks = [("ecs", "/livez", container["healthCheck"]["command"])]
    for kind, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        checks.append(("eks", path, pod()["containers"][0][kind]["exec"]["command"]))
    for name, path, command in checks:
        code = command[-1]
        compile(code, name, "exec")
        assert command[-3:-1] == ["python", "-c"]
        assert f"http://{conf(name).sqs_heartbeat_status}{path}" in code


def test_the_numbers_of_runs_and_receives_on_the_pages_are_the_doctors() -> None:
    fifo, retries = flat("docs/howto/fifo.md"), flat("docs/howto/retries.md")
    stated = re.search(r"With `max_retries=(\d+)` a `maxReceiveCount` of (\d+) is enough", fifo)
    assert stated
    tries, receives = map(int, stated.groups())
    app = AppFacts(tasks=[TaskFacts(name="a", retries=tries)])
    assert list(w032(app, queue_of("q.fifo", receives))) == []
    assert len(list(w032(app, queue_of("q.fifo", receives - 1)))) == 1
    assert "(`SQSHB-W032`)" in fifo
    for page in ("docs/howto/fifo.md", "docs/settings.md"):
        # As test_eta.py shows.
        assert "due later than its lease can last" in flat(page)

    tasks = [TaskFacts(name="a", retries=3)]
    queue = queue_of("q", 5)
    (found,) = i218(AppFacts(tasks=tasks), queue)
    (acked,) = i218(AppFacts(tasks=tasks, acks_on_failure="s"), queue)
    assert "a dead letter after 8 failed runs" in str(found.value)
    assert "a task that always fails runs 8 times before it is a dead letter" in retries
    assert "deleted after 4 failed runs" in str(acked.value)
    assert "it runs 4 times and is never a dead letter" in retries
    assert "up to 20 runs" in str(found.value)
    assert "so 20 runs" in retries
    assert [name for name in NAMED if f'`"{name}"`' not in retries] == []
    assert f"`{ExponentialDelay()}` | after 2, 4, 8, ... s, up to 900" in retries


@pytest.mark.usefixtures("_no_shared_tasks")
def test_the_code_of_the_page_on_retries_works_as_described(worker: Worker) -> None:
    app = Celery("page", set_as_current=False, task_acks_late=True)
    busy, fetched = {"busy"}, list[str]()
    names = {"app": app, "shop_is_busy": busy.__contains__, "fetch_orders": fetched.append}
    for block in blocks("docs/howto/retries.md", "python"):
        exec(block, names)
    queue = QueueInfo(name="q", url="https://q", visibility_timeout=30, max_receive_count=5)

    def delay(setting: Any, error: type[BaseException] | None = None, age: float = 1.0) -> Any:
        failure = Failure(queue=queue, receive_count=3, exception=error, message_age=age)
        return choose_delay(setting, failure)

    rebuild = app.tasks[names["rebuild"].name]  # type: ignore[attr-defined]
    settings = read_settings(app.conf.get, tasks={"rebuild": rebuild.sqs_heartbeat})
    assert delay(settings.for_queue("mails").release_delay) == 30
    assert delay(settings.for_task("mails", "rebuild").release_delay) is None
    assert 4 <= delay(settings.for_queue("other").release_delay) <= 8

    backoff = read_settings({"sqs_heartbeat_release_delay": names["backoff"]}.get)
    chosen = backoff.rules.release_delay
    assert [delay(chosen, error) for error in (None, KeyError, ConnectionRefusedError)] == [
        0,
        0,
        15,
    ]
    assert delay(chosen, ConnectionError, age=3601.0) == 600

    with pytest.raises(ReleaseMessage) as raised:
        run_task(names["import_orders"], ["busy"], MESSAGE)
    assert (raised.value.delay, asked_delay("a")) == (90, None)
    run_task(names["import_orders"], ["idle"], MESSAGE)
    assert asked_delay("a") == 300
