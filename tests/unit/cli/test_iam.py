"""`celery -A proj sqs-heartbeat iam`: the smallest policy for a worker or a producer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.cli.iam import SEND, QueuePlace, policy
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.golden import golden, without_foreign
from tests.support.proxy import FaultProxy
from tests.unit.cli.conftest import MADE_UP, NOWHERE, app_at, run

ID = "123456789012"
HERE = QueuePlace(name="q", region="eu-west-3", account=ID)
KEYS = (
    "arn:aws:kms:eu-west-3:1:key/ab",
    "ab-12",
    "alias/ours",
    f"arn:aws:kms:eu-west-3:{ID}:alias/ours",
)


GOV = "vpce-0a-b1.sqs.us-gov-west-1.vpce.amazonaws.com"
#: URLs of a queue q, with the region and the account in them.
URLS: dict[str, tuple[str | None, str | None]] = {
    f"https://sqs.eu-west-3.amazonaws.com/{ID}/q": ("eu-west-3", ID),
    f"https://eu-west-3.queue.amazonaws.com/{ID}/q": ("eu-west-3", ID),
    f"https://queue.amazonaws.com/{ID}/q": ("us-east-1", ID),
    f"https://{GOV}/{ID}/q": ("us-gov-west-1", ID),
    f"https://sqs.cn-north-1.amazonaws.com.cn/{ID}/q": ("cn-north-1", ID),
    "http://localhost:9324/queue/q": (None, None),
    "http://127.0.0.1:9324/q": (None, None),
}
ARNS = (
    f"arn:aws:sqs:eu-west-3:{ID}:q",
    f"arn:aws-cn:sqs:cn-north-1:{ID}:q",
    f"arn:aws-us-gov:sqs:us-gov-west-1:{ID}:q.fifo",
)


def test_urls_and_arns_are_read() -> None:
    for url, (region, account) in URLS.items():
        assert QueuePlace.of_url(url) == QueuePlace(name="q", region=region, account=account)
    for arn in ARNS:
        place = QueuePlace.of_arn(arn)
        assert place.arn("sqs", place.name) == arn


#: What each policy is made of, beside the names of the queues.
POLICIES: dict[str, dict[str, Any]] = {
    "a worker": {},
    "a worker, predefined queues": {"is_predefined": True},
    "a producer": {"is_producer": True},
    "a producer, predefined queues": {"is_producer": True, "is_predefined": True},
    "a journal in a folder": {"is_predefined": True, "journal": "/var/journal"},
    "a journal on S3": {"is_predefined": True, "journal": "s3://logs/sqs/"},
    "a journal in a whole bucket": {"is_predefined": True, "journal": "s3://logs"},
    "a producer of an app with a journal": {"is_producer": True, "journal": "s3://logs"},
    "keys": {"is_producer": True, "is_predefined": True, "keys": dict.fromkeys(KEYS, HERE)},
}


def test_the_permissions_of_workers_and_producers() -> None:
    places = [HERE, replace(HERE, name="a"), HERE]
    texts = []
    for name, options in POLICIES.items():
        made = policy(places, **{"is_producer": False, "is_predefined": False, **options})
        lines = [json.dumps(each) for each in made["Statement"]]
        texts += [f"# {name}", *lines]
        assert {each["Effect"] for each in made["Statement"]} == {"Allow"}
    golden("policies.txt", "\n".join([*texts, ""]))


URL = f"https://sqs.eu-west-3.amazonaws.com/{ID}/work"


def test_the_policy_has_the_arns_and_keys_that_sqs_returns(server: SimulatedServer) -> None:
    app = app_at(server.broker_url, sqs_heartbeat_journal="s3://logs/sqs")
    ended = run(app, "iam -Q work,secret")
    assert ended.exit_code == 0, ended.stderr
    golden("iam.json", ended.stdout)


def test_without_sqs_the_policy_is_made_from_urls_or_options() -> None:
    app = app_at(NOWHERE, options={"predefined_queues": {"work": {"url": URL}}})
    (statement,) = json.loads(run(app, "iam --producer").stdout)["Statement"]
    assert statement["Resource"] == f"arn:aws:sqs:eu-west-3:{ID}:work"
    assert statement["Action"] == [*SEND]
    named = run(app_at(NOWHERE), f"iam --account {ID} --region us-west-2")
    assert f"arn:aws:sqs:us-west-2:{ID}:work" in named.stdout


#: The broker, settings, and the options.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (NOWHERE, {}, ""),
    (NOWHERE, {"task_create_missing_queues": False}, "-Q nope"),
    (NOWHERE, {"broker_transport_options": {"predefined_queues": {"work": {}}}}, "--producer"),
    (NOWHERE, {"task_queues": {"a": 5}}, ""),
    (NOWHERE, {"task_default_queue": ""}, ""),
    ("memory://", {}, "--producer"),
    ("sqss://k:secret@h", {}, ""),
    (NOWHERE, {}, "-Q ,"),
    (NOWHERE, {}, f"-Q {'q' * 81}"),
    (NOWHERE, {}, "--account 12"),
    (NOWHERE, {}, "--region nowhere"),
]


def test_no_policy_is_made_of_an_unusable_app_or_of_wrong_options() -> None:
    lines = []
    for broker, conf, options in REFUSED:
        ended = run(app_at(broker, **conf), f"iam {options}")
        assert (ended.exit_code, ended.stdout) == (2, "")
        lines.append(ended.stderr.splitlines()[-1])
    lines.append(run(MADE_UP, "iam").stderr.splitlines()[-1])
    golden("iam_refused.txt", without_foreign("\n".join([*lines, ""])))
    assert "secret" not in "".join(lines)


def test_a_producer_makes_no_call_that_its_policy_lacks(server: SimulatedServer) -> None:
    with FaultProxy(server.url) as proxy:
        app = app_at(proxy.broker_url)
        with app.producer_pool.acquire() as producer:
            app.send_task("proj.add", (1, 2), producer=producer)
        app.close()
        made = {f"sqs:{call.operation}" for call in proxy.calls()}
    assert set(SEND) <= made <= {*SEND, "sqs:ListQueues", "sqs:CreateQueue"}
