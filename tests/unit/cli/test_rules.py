"""The doctor's table of rules: which facts each of them finds, and with what setting and value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from celery_sqs_heartbeat.cli.app import AppFacts, BrokerFacts, TaskFacts
from celery_sqs_heartbeat.cli.examination import FINDINGS, check, check_offline, check_queue
from celery_sqs_heartbeat.cli.findings import Finding, Severity, worst_first
from celery_sqs_heartbeat.cli.machine import MachineFacts, Place, Probed
from celery_sqs_heartbeat.cli.queue_rules import IN_FLIGHT_QUOTA
from celery_sqs_heartbeat.cli.queues import Answer, QueueFacts, Tried
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.worker.versions import TESTED
from tests.support.golden import golden

#: What people see of a finding, by its id without "SQSHB-".
Seen = dict[str, str]
#: Passed checks and notes about sound facts.
SOUND = {"P008", "P201", "P301", "P503", "P505", "I209"}
RECEIVE, DELETE, ATTRIBUTES = "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"
NO_QUEUE = Answer(tried=Tried.NO_QUEUE)
ARN = "arn:aws:sqs:eu-west-1:1:dead"
DEAD = json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 5})
DEAD_FIFO = json.dumps({"deadLetterTargetArn": f"{ARN}.fifo", "maxReceiveCount": 5})
SOUND_QUEUE = {
    "VisibilityTimeout": 30,
    "RedrivePolicy": DEAD,
    "MessageRetentionPeriod": 345_600,
    "ApproximateNumberOfMessagesNotVisible": 0,
}
HIGH = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
TWO_GROUPS = frozenset({"A17", "B4"})
EARLY = [TaskFacts(name="b", acks_late=False), TaskFacts(name="a")]
SENT_BY_A = Settings(tasks={"a": Rules(fifo_retry="send")})
#: All retries are sent but those of one task.
RELEASED_BY_A = Settings(
    rules=Rules(fifo_batch=10, fifo_retry="send"), tasks={"a": Rules(fifo_retry="release")}
)


def seen(findings: Iterable[Finding], *, all_: bool = False) -> Seen:
    found = {f.id.removeprefix("SQSHB-"): f for f in findings}
    return {id_: shown(f) for id_, f in found.items() if all_ or id_ not in SOUND}


def shown(finding: Finding) -> str:
    names = (finding.setting, finding.value)
    return "=".join(name for name in names if name is not None)


def having(**settings: Any) -> dict[str, Any]:
    """Return the facts about an app with these settings."""
    return {"settings": Settings(enabled=True, **settings)}


def ruled(**rules: Any) -> dict[str, Any]:
    """Return the facts about an app with these settings for all queues and tasks."""
    return having(rules=Rules(**rules))


def app(**facts: Any) -> Seen:
    return seen(check_offline(AppFacts(**facts)))


def broker(**facts: Any) -> Seen:
    return app(broker=BrokerFacts(**facts))


def polling(**facts: Any) -> Seen:
    return seen(check({"polled": AppFacts(broker=BrokerFacts(**facts))}))


def queue(attributes: dict[str, Any] | None = None, /, **facts: Any) -> Seen:
    """Return what is found about a sound queue with other attributes, or of an app like this."""
    read = {key: str(value) for key, value in {**SOUND_QUEUE, **(attributes or {})}.items()}
    known = QueueFacts(name="work", url="https://sqs/1/work", attributes=read)
    return seen(check_queue(AppFacts(**facts), known))


def fifo(
    attributes: dict[str, Any] | None = None, /, *, dead: Tried | None = Tried.ALLOWED, **facts: Any
) -> Seen:
    read = {**SOUND_QUEUE, "RedrivePolicy": DEAD_FIFO, **HIGH, **(attributes or {})}
    known = QueueFacts(
        name="q.fifo",
        url="https://sqs/1/q.fifo",
        attributes={key: str(value) for key, value in read.items()},
        dead_letters=dead and Answer(tried=dead),
    )
    return seen(check_queue(AppFacts(**{"groups": TWO_GROUPS, **facts}), known))


def absent(name: str = "q", *, broker: BrokerFacts | None = None, **facts: Any) -> Seen:
    known = QueueFacts(name=name, found=NO_QUEUE, **{"is_predefined": False, **facts})
    return seen(check_queue(AppFacts(broker=broker or BrokerFacts()), known))


def tries(**answers: Tried) -> Seen:
    by_action = {f"sqs:{name}": Answer(tried=each, reason="Code") for name, each in answers.items()}
    return seen(check_queue(AppFacts(), QueueFacts(name="q", tries=by_action)))


def named(tried: Tried, name: str = "wrok") -> Seen:
    return seen(
        check({"named": QueueFacts(name=name, found=Answer(tried=tried)), "known": ["work"]})
    )


def together(*queues: QueueFacts) -> Seen:
    return seen(check({"queues": queues}))


def machine(**facts: Any) -> Seen:
    settings = Settings(journal="/journal", status="127.0.0.1:9808")
    return seen(check({"machine": MachineFacts(**facts)}, app=AppFacts(settings=settings)))


def versions(celery: str, kombu: str) -> Seen:
    facts = AppFacts(versions={"celery": celery, "kombu": kombu}, pool="solo")
    return seen(check({"installed": facts}), all_=True)


def retried(retries: int | None, **known: Any) -> dict[str, Any]:
    """Return the facts about an app with a task that retries itself this often."""
    return {"tasks": [TaskFacts(name="a", retries=retries, **known)]}


UNANSWERED = QueueFacts(name="q", found=Answer(tried=Tried.BUSY))
READ = QueueFacts(name="q", attributes={"VisibilityTimeout": "30"})
OFF = Settings()
#: What is found by which facts.
FOUND: list[tuple[Seen, str]] = [
    # The settings and the broker.
    (app(), ""),
    (app(settings=OFF), "I008"),
    (app(is_installed=False), "E003"),
    (app(is_installed=False, settings=OFF), "E003"),
    (app(faults=["threshold=0: wrong"], settings=OFF), "E001"),
    (broker(is_sqs=False, transport="redis"), "E002"),
    (broker(own_transport="mine:Transport"), "E004"),
    (broker(is_sqs=False, broken="KeyError: 'url'"), "E005"),
    (broker(plain_http="http://sqs.internal"), "W016"),
    (broker(option_faults=["a['b']=1: wrong"]), "E401"),
    (app(**having(status_token="secret")), "W010"),
    (app(**having(otel=True), has_otel=False), "E011"),
    (app(broken_tasks="ImportError: x"), "E012"),
    (app(pool_fault="x (unknown)"), "E013"),
    # Delivery. The rest matters only if messages outlive the start of their tasks.
    (app(acks_late=False, acks_on_failure="s", keeps_on_worker_lost=False), "W101"),
    (app(tasks=EARLY), "I102"),
    (app(acks_on_failure="s"), "W103"),
    (app(acks_on_failure="s", keeps_on_worker_lost=False), "W103 W104"),
    # A lost process counts as a failure then, and its message stays.
    (app(keeps_on_worker_lost=False), ""),
    (app(prefetch_multiplier=0), "W105"),
    (app(prefetch_multiplier=10), ""),
    (app(prefetch_multiplier=11), "I106"),
    (app(eta_task_limit=None), "I107"),
    (app(time_limit=None), "I108"),
    (app(time_limit=43_195), ""),
    (app(time_limit=43_196), "W109"),
    (app(time_limit=601, **ruled(max_lease=600)), "W109"),
    (
        app(time_limit=90, **having(queues={"slow": Rules(max_lease=60)})),
        "W109",
    ),
    (
        app(
            tasks=[TaskFacts(name="a", time_limit=601), TaskFacts(name="b", time_limit=9)],
            settings=Settings(
                enabled=True, tasks={"a": Rules(max_lease=600), "b": Rules(max_lease=600)}
            ),
        ),
        "W109",
    ),
    (app(pool="threads", **ruled(on_lost="terminate")), "W110"),
    (app(pool="prefork", **ruled(on_lost="terminate")), ""),
    (app(pool="threads", **ruled(on_lost="revoke")), ""),
    # Polls.
    (polling(wait_time=20, polling_interval=0), ""),
    (polling(wait_time=0), "W402"),
    (polling(polling_interval=1.5), "I404"),
    (polling(created_timeout=60), "I405"),
    (queue(broker=BrokerFacts(wait_time=20)), ""),
    (queue({"VisibilityTimeout": 29}, broker=BrokerFacts(wait_time=20)), "I403"),
    # Time for a third call.
    (app(**ruled(visibility_timeout=15)), ""),
    (app(**ruled(visibility_timeout=14)), "W213"),
    (app(**having(queues={"q": Rules(visibility_timeout=5)})), "W213"),
    (app(**having(tasks={"a": Rules(visibility_timeout=5)})), "W213"),
    (queue({"VisibilityTimeout": 15}), ""),
    (queue({"VisibilityTimeout": 14}), "I403 W213"),
    # For any threshold.
    (app(**ruled(visibility_timeout=5, threshold=2)), "W213"),
    (app(**having(interval=8, rules=Rules(visibility_timeout=30))), "W214"),
    (queue(settings=Settings(interval=8)), "W214"),
    # Whether a queue exists.
    (absent(is_predefined=True, url="https://sqs/1/q"), "E201"),
    (absent(is_predefined=True), "E215"),
    (absent(), "W202"),
    (absent(sqs_name="prod-q"), "W202"),
    (absent(broker=BrokerFacts(creation_faults=["a['b']=1: wrong", "c"])), "E219"),
    (absent(is_known=False), "E220"),
    (absent("a b", sqs_name="a b"), "E216"),
    (absent(sqs_name="q" * 81), "E216"),
    (named(Tried.ALLOWED), ""),
    (named(Tried.NO_QUEUE), "W009"),
    (named(Tried.NO_QUEUE, "x"), "W009"),
    # If SQS did not say whether it exists, only a similar name shows a typing error.
    (named(Tried.DENIED), "W009"),
    (named(Tried.DENIED, "x"), ""),
    # Attributes.
    (queue(), ""),
    (queue({"VisibilityTimeout": 0}), "E203"),
    (queue({"RedrivePolicy": ""}), "W204"),
    (queue({"RedrivePolicy": '{"maxReceiveCount": 2}'}), "I221 W205"),
    (queue({"RedrivePolicy": '{"maxReceiveCount": "4"}'}), "I221"),
    (queue({"RedrivePolicy": '{"maxReceiveCount": "3"}'}, prefetch_multiplier=2), ""),
    (queue({"VisibilityTimeout": 300}), ""),
    (queue({"VisibilityTimeout": 301}), "I206"),
    (queue({"VisibilityTimeout": 1800}, **ruled(visibility_timeout=30)), ""),
    (queue({"MessageRetentionPeriod": 60, "VisibilityTimeout": 60}), "E207"),
    (queue({"MessageRetentionPeriod": 86_400}), "W208"),
    (queue({"MessageRetentionPeriod": 86_401}), ""),
    (queue({"ApproximateNumberOfMessagesNotVisible": 95_999}), ""),
    (queue({"ApproximateNumberOfMessagesNotVisible": 96_000}), "W210"),
    (queue({"ApproximateNumberOfMessagesNotVisible": 120_000}), "E211"),
    (queue({"KmsMasterKeyId": "alias/ours"}), "I212"),
    (queue({"KmsMasterKeyId": "alias/aws/sqs"}), ""),
    # Retries.
    (queue(**retried(3)), "I218"),
    (queue(**retried(3), acks_on_failure="s"), "I218"),
    (queue(**retried(None)), "I218"),
    (queue(**retried(3, acks_late=False)), ""),
    (queue({"RedrivePolicy": ""}, **retried(3)), "W204"),
    # A retry is one more receive of the same message: SQS allows 5.
    (fifo(**retried(4)), ""),
    (fifo(**retried(5)), "W032"),
    (fifo(**retried(5, acks_late=False)), "W030"),
    # No limit but maxReceiveCount, which is intended.
    (fifo(**retried(None)), ""),
    (fifo({"RedrivePolicy": ""}, **retried(5)), "W021"),
    # FIFO queues.
    (fifo(), ""),
    (fifo({"RedrivePolicy": DEAD}), "W022"),
    (fifo(dead=Tried.NO_QUEUE), "W023"),
    # A denial does not show whether it exists.
    (fifo(dead=Tried.DENIED), ""),
    (fifo(dead=None), ""),
    (fifo({"DeduplicationScope": "queue"}), "W024"),
    (fifo({"FifoThroughputLimit": "perQueue", "DeduplicationScope": "queue"}), "I025"),
    (fifo(groups=frozenset()), "I026"),
    (fifo(groups=frozenset({"A17"})), "I026"),
    (fifo(groups=frozenset(), may_name_groups=True), ""),
    (fifo({"ContentBasedDeduplication": "true"}), "I028"),
    (fifo({"ContentBasedDeduplication": "true"}, **ruled(fifo_retry="send")), "W027"),
    (fifo({"ContentBasedDeduplication": "true"}, **ruled(fifo="parallel")), "W027"),
    (fifo(**ruled(fifo_retry="send")), ""),
    (fifo(deduplicated_routes=["a", "b"]), "W029"),
    (fifo(acks_late=False, tasks=EARLY), "W030"),
    (fifo(acks_late=False), "W030"),
    (fifo(tasks=EARLY), "W030"),
    # The tasks' own value counts.
    (fifo(acks_late=False, tasks=[TaskFacts(name="a")]), ""),
    (fifo(tasks=EARLY, **ruled(fifo="parallel")), ""),
    (fifo(**ruled(fifo_batch=1)), ""),
    (fifo(**ruled(fifo_batch=2)), "W031"),
    (fifo(**ruled(fifo_batch=10, fifo="parallel")), ""),
    # Without a redrive policy they still count as retries, if retries are receives.
    (fifo({"RedrivePolicy": ""}, **ruled(fifo_batch=2)), "W021 W031"),
    (fifo({"RedrivePolicy": ""}, **ruled(fifo_batch=2, fifo_retry="send")), "W021"),
    (fifo({"RedrivePolicy": ""}, settings=RELEASED_BY_A), "W021 W031"),
    # Permissions.
    (tries(), ""),
    (tries(ReceiveMessage=Tried.ALLOWED, DeleteMessage=Tried.DENIED), "E301"),
    (tries(GetQueueAttributes=Tried.DENIED), "W302"),
    (tries(GetQueueAttributes=Tried.UNREACHABLE), "E304"),
    (tries(GetQueueAttributes=Tried.CREDENTIALS), "E305"),
    (tries(ReceiveMessage=Tried.BUSY, DeleteMessage=Tried.BUSY), "W306"),
    (tries(ReceiveMessage=Tried.REFUSED), "W307"),
    (together(), ""),
    (together(QueueFacts(name="q")), ""),
    (together(READ, READ), "I303"),
    (together(QueueFacts(name="q", is_predefined=False, found=NO_QUEUE)), "I303"),
    (together(READ, UNANSWERED), "E308 I303"),
    # This machine.
    (machine(), ""),
    (machine(skew=None), "I504"),
    (machine(skew=None, is_answered=False), ""),
    (machine(skew=-5.0), ""),
    (machine(skew=6.0), "W502"),
    (machine(skew=-300.0), "W502"),
    (machine(skew=301.0), "E501"),
    (machine(journal=Probed(Place.UNUSABLE, "x")), "E506"),
    (machine(journal=Probed(space=(256 << 20) - 1)), "W507"),
    (machine(journal=Probed(Place.NO_BUCKET, "x")), "E508"),
    (machine(journal=Probed(Place.UNTRIED)), "I509"),
    (machine(page=Probed(Place.UNUSABLE, "x")), "E510"),
    (machine(page=Probed(Place.OURS)), "I511"),
    (versions("5.7.0", "5.7.1"), "P505"),
    (versions("5.5.3", "5.5.4"), "P505"),
    (versions("5.4.0", "5.5.4"), "W505"),
    (versions("5.7.0", "5.8.0b1"), "W505"),
]
#: What no facts show, because it is found before they are read.
BEFORE_FACTS = {"E006", "E007", "E014", "E015", "E217"}


@pytest.mark.parametrize(("found", "expected"), FOUND)
def test_the_facts_that_each_rule_finds(found: Seen, expected: str) -> None:
    assert sorted(found) == expected.split()


def test_each_finding_names_the_setting_and_the_value() -> None:
    lines = [f"{id_} {text}".rstrip() for found, _ in FOUND for id_, text in found.items()]
    golden("findings.txt", "\n".join([*lines, ""]))


def test_the_table_above_has_every_rule() -> None:
    tested = {id_ for _, expected in FOUND for id_ in expected.split()}
    assert FINDINGS.keys() - BEFORE_FACTS - tested == SOUND - {"P505"}


def test_passed_checks_and_notes_about_sound_facts_are_found() -> None:
    sound = QueueFacts(
        name="q.fifo",
        attributes={"VisibilityTimeout": "30"},
        tries={RECEIVE: Answer(tried=Tried.ALLOWED), DELETE: Answer(tried=Tried.ALLOWED)},
    )
    found = [
        *check_offline(AppFacts()),
        *check_queue(AppFacts(), sound),
        *check({"machine": MachineFacts()}, app=AppFacts()),
    ]
    passed = {id_: text for id_, text in seen(found, all_=True).items() if id_ in SOUND}
    assert passed == {
        "P008": "sqs_heartbeat_enabled=True",
        "P201": "visibility timeout 30 s",
        "P301": f"{RECEIVE}, {DELETE}",
        "P503": "",
        "I209": "",
    }


@pytest.mark.parametrize("check", [queue, fifo])
def test_a_finding_names_at_most_five_tasks(check: Callable[..., Seen]) -> None:
    (value,) = check(
        tasks=[TaskFacts(name=f"t{number}", retries=9) for number in range(9)]
    ).values()
    assert "t4 (" in value
    assert value.endswith("; and 4 more")


def test_tasks_with_sent_retries_and_with_released_ones_are_in_different_findings() -> None:
    tasks = [TaskFacts(name="a", retries=9), TaskFacts(name="b", retries=7)]
    found = fifo(tasks=tasks, settings=SENT_BY_A)
    assert found["I218"].startswith("maxReceiveCount 5; a (max_retries 9): a dead letter after")
    assert found["W032"] == "maxReceiveCount 5; b (max_retries 7)"


@pytest.mark.parametrize("policy", ["", "{", "[]", "{}", '{"deadLetterTargetArn": ""}', "3"])
def test_a_redrive_policy_that_names_no_queue(policy: str) -> None:
    assert QueueFacts(name="q", attributes={"RedrivePolicy": policy}).dead_letter_name is None


def test_ids_are_distinct_and_every_error_and_warning_has_a_fix() -> None:
    assert len(FINDINGS) == 87
    assert [each.id for each in FINDINGS.values() if not each.title or not each.why] == []
    bad = (Severity.ERROR, Severity.WARNING)
    assert [each.id for each in FINDINGS.values() if each.severity in bad and not each.fix] == []


def test_a_number_means_the_same_for_each_severity() -> None:
    by_number: dict[str, list[str]] = {}
    for id_ in FINDINGS:
        by_number.setdefault(id_[1:], []).append(id_[0])
    shared = {number: "".join(sorted(found)) for number, found in by_number.items()}
    assert {number: found for number, found in shared.items() if len(found) > 1} == {
        "008": "IP",
        "201": "EP",
        "301": "EP",
        "505": "PW",
    }


def test_the_texts_name_the_versions_and_the_quota_of_the_code() -> None:
    assert f"Celery and kombu {TESTED}." in FINDINGS["P505"].why
    assert f"Celery and kombu {TESTED}," in FINDINGS["W505"].fix
    assert f"at most {IN_FLIGHT_QUOTA:,} at a time" in FINDINGS["W210"].why


def test_the_worst_comes_first() -> None:
    severities = [finding.severity for finding in worst_first(FINDINGS.values())]
    assert severities == sorted(severities, key=list(Severity).index)
