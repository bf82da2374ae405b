"""Checks of the broker, the settings and whether the heartbeat is on."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind, of_fault
from celery_sqs_heartbeat.settings import PREFIX

SETTING_FAULT = Kind(
    "SQSHB-E001",
    "a setting is wrong",
    "a worker with --heartbeat-sqs exits at its start",
    "change the value as the rule says, or remove the setting",
)
NOT_SQS = Kind(
    "SQSHB-E002",
    "the broker is not SQS",
    "the heartbeat does nothing on other brokers",
    "set broker_url to an sqs:// URL, or remove celery-sqs-heartbeat",
)
NOT_INSTALLED = Kind(
    "SQSHB-E003",
    "install(app) was not called",
    "the worker has no option --heartbeat-sqs, and sqs_heartbeat_enabled does nothing",
    "where the app is made: from celery_sqs_heartbeat import install; install(app)",
)
OWN_TRANSPORT = Kind(
    "SQSHB-E004",
    "the broker's transport is not kombu's own",
    "the heartbeat takes the place of kombu's SQS transport and lets others be: it does nothing",
    "remove broker_transport and use an sqs:// URL",
)
BROKEN = Kind(
    "SQSHB-E005",
    "kombu can't use the broker's configuration",
    "the worker can't connect",
    "correct broker_url or broker_transport_options",
)
NO_QUEUE = Kind(
    "SQSHB-E006",
    "a queue is not among the app's",
    "a worker that is to consume from it exits",
    "add it to task_queues, or set task_create_missing_queues",
)
NO_APP = Kind(
    "SQSHB-E007",
    "no Celery app was found",
    "there is nothing to check",
    "name it: celery -A proj sqs-heartbeat doctor; in a Django project, import it in the "
    '__init__.py, or set HEARTBEAT_SQS_APP = "proj.celery:app"',
)
WRONG_APP = Kind(
    "SQSHB-E014",
    "the setting names no Celery app",
    "there is nothing to check",
    'set it to the module and the name of yours, as "proj.celery:app", or remove it and import the '
    "app in the __init__.py of your Django project",
)
SEVERAL_APPS = Kind(
    "SQSHB-E015",
    "there are several Celery apps",
    "only one is checked, and it is not known which of them the workers run",
    'set HEARTBEAT_SQS_APP to the module and the name of that one, as "proj.celery:app"',
)
ENABLED = Kind("SQSHB-P008", "the heartbeat is on", "sqs_heartbeat_enabled is set")
ONLY_BY_FLAG = Kind(
    "SQSHB-I008",
    "the heartbeat is on only with the flag",
    "a worker that is started without it keeps no leases",
    "start workers with --heartbeat-sqs, or set sqs_heartbeat_enabled = True",
)
PLAIN_HTTP = Kind(
    "SQSHB-W016",
    "SQS is asked by plain HTTP",
    "anyone on the way there can read the messages; kombu does so for a host in broker_url",
    "set is_secure to True in broker_transport_options, or leave the host out of broker_url: "
    "the region says where AWS is",
)

KINDS = (
    SETTING_FAULT,
    NOT_SQS,
    NOT_INSTALLED,
    OWN_TRANSPORT,
    BROKEN,
    NO_QUEUE,
    NO_APP,
    WRONG_APP,
    SEVERAL_APPS,
    ENABLED,
    ONLY_BY_FLAG,
    PLAIN_HTTP,
)


def check_broker(app: AppFacts) -> Iterator[Finding]:
    """Check what must be so for the heartbeat to do anything."""
    for fault in app.faults:
        yield of_fault(SETTING_FAULT, fault)
    if app.broken_broker is not None:
        yield BROKEN.found(value=app.broken_broker)
    elif not app.is_sqs:
        yield NOT_SQS.found(value=app.transport)
    elif app.own_transport is not None:
        yield OWN_TRANSPORT.found(setting="broker_transport", value=app.own_transport)
    if app.plain_http is not None:
        yield PLAIN_HTTP.found(value=app.plain_http)
    if not app.is_installed:
        yield NOT_INSTALLED.found()
    elif app.settings.enabled:
        yield ENABLED.found(setting=PREFIX + "enabled", value=True)
    elif not app.faults:
        yield ONLY_BY_FLAG.found(setting=PREFIX + "enabled", value=False)
