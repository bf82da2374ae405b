"""What each check finds, as tables: the facts that it gets, and the ids of its findings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts, SendingFacts, TaskFacts
from celery_sqs_heartbeat.cli.doctor.checks import KINDS
from celery_sqs_heartbeat.cli.doctor.checks.broker import check_broker
from celery_sqs_heartbeat.cli.doctor.checks.delivery import check_delivery
from celery_sqs_heartbeat.cli.doctor.checks.fifo import check_fifo
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Severity, worst_first
from celery_sqs_heartbeat.cli.doctor.checks.machine import check_clock, check_versions
from celery_sqs_heartbeat.cli.doctor.checks.permissions import check_permissions, check_untried
from celery_sqs_heartbeat.cli.doctor.checks.polling import check_polling, check_waits
from celery_sqs_heartbeat.cli.doctor.checks.queue import check_queue
from celery_sqs_heartbeat.cli.doctor.checks.retries import check_retries
from celery_sqs_heartbeat.cli.queues.queue_facts import Answer, QueueFacts, Tried
from celery_sqs_heartbeat.settings import Rules, Settings

DEAD_LETTERS = json.dumps({"deadLetterTargetArn": "arn:dead", "maxReceiveCount": 5})
SOUND = {
    "VisibilityTimeout": "30",
    "RedrivePolicy": DEAD_LETTERS,
    "MessageRetentionPeriod": "345600",
    "ApproximateNumberOfMessagesNotVisible": "0",
}

NO_QUEUE = Answer(tried=Tried.NO_QUEUE)
UNMADE = QueueFacts(name="q", is_predefined=False, found=NO_QUEUE)
WRONG_TIMEOUT = "broker_transport_options['visibility_timeout']=86400: wrong"


def ids(findings: Iterable[Finding]) -> list[str]:
    return [finding.id.removeprefix("SQSHB-") for finding in findings]


def settings_of(**rules: Any) -> Settings:
    return Settings(enabled=True, rules=Rules(**rules))


def ruled(**rules: Any) -> dict[str, Any]:
    """Return the facts about an app with these rules."""
    return {"settings": settings_of(**rules)}


def a_queue(name: str = "work", **attributes: Any) -> QueueFacts:
    told = {**SOUND, **{key: str(value) for key, value in attributes.items()}}
    return QueueFacts(name=name, url=f"https://sqs/1/{name}", attributes=told)


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, ["P008"]),
        ({"settings": Settings()}, ["I008"]),
        ({"is_installed": False}, ["E003"]),
        ({"is_installed": False, "settings": Settings()}, ["E003"]),
        ({"is_sqs": False, "transport": "redis"}, ["E002", "P008"]),
        ({"own_transport": "mine:Transport"}, ["E004", "P008"]),
        ({"plain_http": "http://sqs.internal"}, ["W016", "P008"]),
        ({"is_sqs": False, "broken_broker": "KeyError: 'url'"}, ["E005", "P008"]),
        ({"faults": ("a", "b"), "settings": Settings()}, ["E001", "E001"]),
    ],
)
def test_the_broker_and_the_settings(facts: dict[str, Any], found: list[str]) -> None:
    assert ids(check_broker(AppFacts(**facts))) == found


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, []),
        # The rest matters only if messages outlive the start of their tasks.
        ({"acks_late": False, "acks_on_failure": "s", "keeps_on_worker_lost": False}, ["W101"]),
        ({"tasks": [TaskFacts(name="a", acks_late=False)]}, ["I102"]),
        ({"acks_on_failure": "s"}, ["W103"]),
        ({"acks_on_failure": "s", "keeps_on_worker_lost": False}, ["W103", "W104"]),
        # A lost process counts as a failure then, and its message stays.
        ({"acks_on_failure": None, "keeps_on_worker_lost": False}, []),
        ({"prefetch_multiplier": 0}, ["W105"]),
        ({"prefetch_multiplier": 10}, []),
        ({"prefetch_multiplier": 11}, ["I106"]),
        ({"eta_task_limit": None}, ["I107"]),
        ({"time_limit": None}, ["I108"]),
        ({"time_limit": 43_195}, []),
        ({"time_limit": 43_196}, ["W109"]),
        ({"time_limit": 601, "settings": settings_of(max_lease=600)}, ["W109"]),
        ({"time_limit": 90, "settings": Settings(queues={"slow": Rules(max_lease=60)})}, ["W109"]),
        (
            {
                "tasks": [TaskFacts(name="a", time_limit=601), TaskFacts(name="b", time_limit=9)],
                "settings": Settings(tasks={"a": Rules(max_lease=600), "b": Rules(max_lease=600)}),
            },
            ["W109"],
        ),
        ({"pool": "threads", "settings": settings_of(on_lost="terminate")}, ["W110"]),
        ({"pool": "prefork", "settings": settings_of(on_lost="terminate")}, []),
        ({"pool": "threads", "settings": settings_of(on_lost="revoke")}, []),
    ],
)
def test_delivery(facts: dict[str, Any], found: list[str]) -> None:
    assert ids(check_delivery(AppFacts(**facts))) == found


@pytest.mark.parametrize(
    ("queue", "facts", "found"),
    [
        (a_queue(), {}, ["P201"]),
        (QueueFacts(name="q", url="https://sqs/1/q", found=NO_QUEUE), {}, ["E201"]),
        (QueueFacts(name="q", found=NO_QUEUE), {}, ["E215"]),
        (UNMADE, {}, ["W202"]),
        (UNMADE, {"creation_faults": (WRONG_TIMEOUT,)}, ["E219"]),
        (replace(UNMADE, name="a b", sqs_name="a b"), {}, ["E216"]),
        (replace(UNMADE, sqs_name="q" * 81), {}, ["E216"]),
        (QueueFacts(name="q", found=Answer(tried=Tried.DENIED)), {}, []),
        (a_queue(), {"settings": settings_of(threshold=30)}, ["P201", "E203"]),
        (a_queue(), {"settings": settings_of(max_lease=29)}, ["P201", "E203"]),
        (a_queue(VisibilityTimeout=0), {}, ["P201", "E203"]),
        (a_queue(), {"concurrency": 10_000}, ["P201", "E203"]),
        (a_queue(RedrivePolicy=""), {}, ["P201", "W204"]),
        (a_queue(RedrivePolicy='{"maxReceiveCount": 2}'), {}, ["P201", "W205", "I221"]),
        (a_queue(RedrivePolicy='{"maxReceiveCount": "4"}'), {}, ["P201", "I221"]),
        (a_queue(RedrivePolicy='{"maxReceiveCount": "3"}'), {"prefetch_multiplier": 2}, ["P201"]),
        (a_queue(VisibilityTimeout=300), {}, ["P201"]),
        (a_queue(VisibilityTimeout=301), {}, ["P201", "I206"]),
        (a_queue(VisibilityTimeout=1800), ruled(visibility_timeout=30), ["P201"]),
        (a_queue(MessageRetentionPeriod=60, VisibilityTimeout=60), {}, ["P201", "E207"]),
        (a_queue(MessageRetentionPeriod=61, VisibilityTimeout=60), {}, ["P201", "W208"]),
        (a_queue(MessageRetentionPeriod=86_400), {}, ["P201", "W208"]),
        (a_queue(MessageRetentionPeriod=86_401), {}, ["P201"]),
        (a_queue(ApproximateNumberOfMessagesNotVisible=95_999), {}, ["P201"]),
        (a_queue(ApproximateNumberOfMessagesNotVisible=96_000), {}, ["P201", "W210"]),
        (a_queue(ApproximateNumberOfMessagesNotVisible=120_000), {}, ["P201", "E211"]),
        (a_queue(KmsMasterKeyId="alias/ours"), {}, ["P201", "I212"]),
        (a_queue(KmsMasterKeyId="alias/aws/sqs"), {}, ["P201"]),
        (a_queue(), {"tasks": [TaskFacts(name="a", retries=3)]}, ["P201", "I218"]),
        (a_queue(), {"tasks": [TaskFacts(name="a", retries=None)]}, ["P201", "I218"]),
        (a_queue(), {"tasks": [TaskFacts(name="a", retries=3, acks_late=False)]}, ["P201"]),
        (a_queue(RedrivePolicy=""), {"tasks": [TaskFacts(name="a", retries=3)]}, ["P201", "W204"]),
    ],
)
def test_a_queue(queue: QueueFacts, facts: dict[str, Any], found: list[str]) -> None:
    assert ids(check_queue(AppFacts(**facts), queue)) == found


def a_fifo_queue(**attributes: Any) -> QueueFacts:
    """Return a sound FIFO queue, changed by the attributes given."""
    policy = json.dumps({"deadLetterTargetArn": "arn:aws:sqs:e:1:dead.fifo", "maxReceiveCount": 5})
    high = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    queue = a_queue("q.fifo", **{"RedrivePolicy": policy, **high, **attributes})
    return replace(queue, dead_letters=Answer(tried=Tried.ALLOWED))


def retried(retries: int | None, **known: Any) -> dict[str, Any]:
    """Return the facts about an app with a task that retries itself this often."""
    return {"tasks": [TaskFacts(name="a", retries=retries, **known)]}


SENT_BY_A = Settings(tasks={"a": Rules(fifo_retry="send")})
SENT_BY_QUEUE = Settings(queues={"q.fifo": Rules(fifo_retry="send")})
#: All retries are sent but those of one task.
RELEASED_BY_A = Settings(
    rules=Rules(fifo_batch=10, fifo_retry="send"), tasks={"a": Rules(fifo_retry="release")}
)
WITH_GROUPS = SendingFacts(groups=frozenset({"A17", "B4"}))
ON = {"ContentBasedDeduplication": "true"}
EARLY = [TaskFacts(name="b", acks_late=False), TaskFacts(name="a")]


@pytest.mark.parametrize(
    ("queue", "facts", "found"),
    [
        (a_fifo_queue(), {}, []),
        (a_fifo_queue(RedrivePolicy=""), {}, ["W021"]),
        (a_fifo_queue(RedrivePolicy=DEAD_LETTERS), {}, ["W022"]),
        (replace(a_fifo_queue(), dead_letters=NO_QUEUE), {}, ["W023"]),
        # A denial does not show whether it exists.
        (replace(a_fifo_queue(), dead_letters=Answer(tried=Tried.DENIED)), {}, []),
        (replace(a_fifo_queue(), dead_letters=None), {}, []),
        (a_fifo_queue(DeduplicationScope="queue"), {}, ["W024"]),
        (a_fifo_queue(FifoThroughputLimit="perQueue"), {}, ["I025"]),
        (a_fifo_queue(FifoThroughputLimit="perQueue", DeduplicationScope="queue"), {}, ["I025"]),
        (a_fifo_queue(), {"sending": SendingFacts()}, ["I026"]),
        (a_fifo_queue(), {"sending": SendingFacts(groups=frozenset({"A17"}))}, ["I026"]),
        (a_fifo_queue(), {"sending": SendingFacts(may_name_groups=True)}, []),
        (a_fifo_queue(**ON), {"settings": settings_of(fifo_retry="send")}, ["W027"]),
        (a_fifo_queue(**ON), {"settings": settings_of(fifo="parallel")}, ["W027"]),
        (a_fifo_queue(**ON), {"settings": SENT_BY_QUEUE}, ["W027"]),
        (a_fifo_queue(**ON), {}, ["I028"]),
        (a_fifo_queue(), {"settings": settings_of(fifo_retry="send")}, []),
        (a_fifo_queue(), {"sending": replace(WITH_GROUPS, deduplicated_routes=("a",))}, ["W029"]),
        (a_fifo_queue(), {"acks_late": False, "tasks": EARLY}, ["W030"]),
        (a_fifo_queue(), {"tasks": EARLY}, ["W030"]),
        # The tasks' own value counts.
        (a_fifo_queue(), {"acks_late": False, "tasks": [TaskFacts(name="a")]}, []),
        (a_fifo_queue(), {"acks_late": False}, ["W030"]),
        (a_fifo_queue(), {"tasks": EARLY, "settings": settings_of(fifo="parallel")}, []),
        # A retry is one more receive of the same message: SQS allows 5.
        (a_fifo_queue(), retried(4), []),
        (a_fifo_queue(), retried(5), ["W032"]),
        (a_fifo_queue(), {**retried(5), "acks_on_failure": "s"}, ["W032"]),
        (a_fifo_queue(), retried(5, acks_late=False), ["W030"]),
        (a_fifo_queue(), retried(0), []),
        # No limit but maxReceiveCount, which is intended.
        (a_fifo_queue(), retried(None), []),
        (a_fifo_queue(RedrivePolicy=""), retried(5), ["W021"]),
        # On this queue a retry is a new message.
        (a_fifo_queue(), {**retried(5), "settings": settings_of(fifo="parallel")}, ["I218"]),
        (a_fifo_queue(), {**retried(5), "settings": settings_of(fifo_retry="send")}, ["I218"]),
        (a_fifo_queue(), {**retried(5), "settings": SENT_BY_A}, ["I218"]),
        (a_fifo_queue(), {"settings": settings_of(fifo_batch=2)}, ["W031"]),
        (a_fifo_queue(), {"settings": settings_of(fifo_batch=1)}, []),
        # Without a redrive policy they still count as retries, if retries are receives.
        (a_fifo_queue(RedrivePolicy=""), ruled(fifo_batch=10), ["W021", "W031"]),
        (a_fifo_queue(RedrivePolicy=""), ruled(fifo_batch=10, fifo_retry="send"), ["W021"]),
        (a_fifo_queue(RedrivePolicy=""), {"settings": RELEASED_BY_A}, ["W021", "W031"]),
        (a_fifo_queue(), {"settings": settings_of(fifo_batch=10, fifo_retry="send")}, ["W031"]),
        # The keeper makes the deletes of a queue in order, regardless of the setting.
        (a_fifo_queue(), {"settings": settings_of(fifo_batch=10, fifo="parallel")}, []),
    ],
)
def test_a_fifo_queue(queue: QueueFacts, facts: dict[str, Any], found: list[str]) -> None:
    app = AppFacts(**{"sending": WITH_GROUPS, **facts})
    assert ids(check_queue(app, queue)) == ["P201", "I209", *found]


def test_findings_about_a_fifo_queue_name_the_setting_and_its_value() -> None:
    batch = {"sending": SendingFacts(), "settings": settings_of(fifo_batch=4)}
    queue = a_fifo_queue(DeduplicationScope="queue", **ON)
    found = {f.id[-4:]: (f.setting, f.value) for f in check_fifo(AppFacts(**batch), queue)}
    assert found == {
        "W024": ("DeduplicationScope", "queue (FifoThroughputLimit perMessageGroupId)"),
        "I026": (None, "default"),
        "I028": ("ContentBasedDeduplication", "true"),
        "W031": ("sqs_heartbeat_fifo_batch", "4 (maxReceiveCount 5)"),
    }
    early = {"sending": WITH_GROUPS, "tasks": EARLY}
    (finding,) = check_fifo(AppFacts(**early), a_fifo_queue())
    assert (finding.queue, finding.value) == ("q.fifo", "b")
    (finding,) = check_fifo(AppFacts(sending=WITH_GROUPS), a_fifo_queue(RedrivePolicy=DEAD_LETTERS))
    assert (finding.setting, finding.value) == ("RedrivePolicy", "dead")
    no_redrive = check_fifo(AppFacts(**batch), a_fifo_queue(RedrivePolicy=""))
    (finding,) = (each for each in no_redrive if each.id == "SQSHB-W031")
    assert finding.value == "4 (no maxReceiveCount)"


@pytest.mark.parametrize("policy", ["", "{", "[]", "{}", '{"deadLetterTargetArn": ""}', "3"])
def test_a_redrive_policy_that_names_no_queue(policy: str) -> None:
    assert a_queue("q.fifo", RedrivePolicy=policy).dead_letter_name is None


@pytest.mark.parametrize(
    ("retries", "acks_on_failure", "said"),
    [
        (3, None, "a (max_retries 3): a dead letter after 8 failed runs, or up to 20 runs if"),
        (3, "s", "a (max_retries 3): deleted after 4 failed runs, or up to 20 runs if"),
        (None, None, "a (max_retries None): retried indefinitely, never a dead letter"),
    ],
)
def test_the_value_says_how_often_a_task_with_retries_may_run(
    retries: int | None, acks_on_failure: str | None, said: str
) -> None:
    app = AppFacts(tasks=[TaskFacts(name="a", retries=retries)], acks_on_failure=acks_on_failure)
    (found,) = check_retries(app, "work", 5)
    assert found.value is not None
    assert found.value.startswith(f"maxReceiveCount 5; {said}")


@pytest.mark.parametrize("queue", ["work", "work.fifo"])
def test_a_finding_names_at_most_five_tasks(queue: str) -> None:
    tasks = [TaskFacts(name=f"t{number}", retries=9) for number in range(9)]
    (found,) = check_retries(AppFacts(tasks=tasks), queue, 5)
    assert found.value is not None
    assert "t4 (" in found.value
    assert found.value.endswith("; and 4 more")


def test_tasks_with_sent_retries_and_with_released_ones_are_in_different_findings() -> None:
    tasks = [TaskFacts(name="a", retries=9), TaskFacts(name="b", retries=7)]
    found = check_retries(AppFacts(tasks=tasks, settings=SENT_BY_A), "work.fifo", 5)
    values = {finding.id[-4:]: str(finding.value) for finding in found}
    assert values.keys() == {"I218", "W032"}
    assert values["I218"].startswith("maxReceiveCount 5; a (max_retries 9): a dead letter after")
    assert values["W032"] == "maxReceiveCount 5; b (max_retries 7)"


RECEIVE, DELETE = "sqs:ReceiveMessage", "sqs:DeleteMessage"


@pytest.mark.parametrize(
    ("tries", "found"),
    [
        ({}, []),
        ({RECEIVE: Tried.ALLOWED, DELETE: Tried.ALLOWED}, ["P301"]),
        ({RECEIVE: Tried.ALLOWED, DELETE: Tried.DENIED}, ["E301", "P301"]),
        ({"sqs:ListQueues": Tried.DENIED}, ["E301"]),
        ({"sqs:GetQueueAttributes": Tried.DENIED}, ["W302"]),
        ({"sqs:GetQueueAttributes": Tried.UNREACHABLE}, ["E304"]),
        ({"sqs:GetQueueAttributes": Tried.CREDENTIALS}, ["E305"]),
        # Once is enough.
        ({RECEIVE: Tried.BUSY, DELETE: Tried.BUSY}, ["W306"]),
        ({RECEIVE: Tried.REFUSED}, ["W307"]),
    ],
)
def test_permissions(tries: dict[str, Tried], found: list[str]) -> None:
    answers = {action: Answer(tried=tried, reason="Code") for action, tried in tries.items()}
    assert ids(check_permissions(QueueFacts(name="q", tries=answers))) == found


def test_permissions_that_are_not_tried_are_reported_once_and_only_if_others_were_tried() -> None:
    assert ids(check_untried([a_queue(), a_queue()])) == ["I303"]
    assert ids(check_untried([QueueFacts(name="q")])) == []
    (missing,) = check_untried([UNMADE])
    assert missing.value == "sqs:CreateQueue"


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, []),
        ({"wait_time": 20}, []),
        ({"wait_time": 0}, ["W402"]),
        ({"polling_interval": 0}, []),
        ({"polling_interval": 1.5}, ["I404"]),
        ({"created_timeout": 60}, ["I405"]),
    ],
)
def test_polling(facts: dict[str, Any], found: list[str]) -> None:
    assert ids(check_polling(AppFacts(**facts))) == found


@pytest.mark.parametrize(
    ("timeout", "wait", "values"),
    [
        (30, 20, []),
        (30, 10, []),
        (29, 20, ["20, shortened to 19"]),
        (9, 10, ["10, shortened to 6"]),
    ],
)
def test_long_polls_that_are_shortened(timeout: int, wait: int, values: list[str]) -> None:
    queue = a_queue(VisibilityTimeout=timeout)
    assert [each.value for each in check_waits(AppFacts(wait_time=wait), queue)] == values


@pytest.mark.parametrize(
    ("skews", "found", "value"),
    [
        ([], [], None),
        ([None, None], ["I504"], None),
        ([None, -5.0], ["P503"], None),
        # A fast answer is more exact than a slow one.
        ([8.0, 2.0], ["P503"], None),
        ([6.0], ["W502"], "6 s ahead"),
        ([-300.0], ["W502"], "300 s behind"),
        ([301.0, 310.0], ["E501"], "301 s ahead"),
    ],
)
def test_the_clock(skews: list[float | None], found: list[str], value: str | None) -> None:
    findings = list(check_clock(skews))
    assert ids(findings) == found
    assert [finding.value for finding in findings if finding.value] == ([value] if value else [])


@pytest.mark.parametrize(
    ("celery", "kombu", "found"),
    [
        ("5.7.0", "5.7.1", ["P505"]),
        ("5.5.3", "5.5.4", ["P505"]),
        ("5.4.0", "5.5.4", ["W505"]),
        ("5.7.0", "5.8.0b1", ["W505"]),
        ("6.0", "5.7.0", ["W505"]),
    ],
)
def test_versions(celery: str, kombu: str, found: list[str]) -> None:
    versions = {"celery": celery, "kombu": kombu}
    (finding,) = check_versions(AppFacts(versions=versions, pool="solo"))
    assert ids([finding]) == found
    assert finding.value == f"celery {celery}, kombu {kombu}, pool solo"


def test_ids_are_distinct_and_every_error_and_warning_has_a_fix() -> None:
    assert len({kind.id for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert kind.title
        assert kind.why
        if kind.severity in (Severity.ERROR, Severity.WARNING):
            assert kind.fix


def test_a_number_means_the_same_for_each_severity() -> None:
    by_number: dict[str, list[str]] = {}
    for kind in KINDS:
        by_number.setdefault(kind.id[-3:], []).append(kind.id)
    shared = [sorted(found) for found in by_number.values() if len(found) > 1]
    assert shared == [
        ["SQSHB-I008", "SQSHB-P008"],
        ["SQSHB-E201", "SQSHB-P201"],
        ["SQSHB-E301", "SQSHB-P301"],
        ["SQSHB-P505", "SQSHB-W505"],
    ]


def test_the_worst_comes_first() -> None:
    findings = [kind.found() for kind in reversed(KINDS)]
    severities = [finding.severity for finding in worst_first(findings)]
    ranks = list(Severity)
    assert severities == sorted(severities, key=ranks.index)
