"""Checks the broker, the settings and whether the heartbeat is on."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind, of_fault
from celery_sqs_heartbeat.settings import PREFIX

SETTING_FAULT = Kind(
    "SQSHB-E001",
    "a setting is wrong",
    "A worker with --heartbeat-sqs exits at startup.",
    "Change the value as the rule says, or remove the setting.",
)
NOT_SQS = Kind(
    "SQSHB-E002",
    "the broker is not SQS",
    "The heartbeat does nothing on other brokers.",
    "Set broker_url to an sqs:// URL, or remove celery-sqs-heartbeat.",
)
NOT_INSTALLED = Kind(
    "SQSHB-E003",
    "install(app) was not called",
    "The worker has no option --heartbeat-sqs, and sqs_heartbeat_enabled does nothing.",
    "Where the app is made, add: from celery_sqs_heartbeat import install; install(app)",
)
OWN_TRANSPORT = Kind(
    "SQSHB-E004",
    "the broker's transport is not kombu's own",
    "The heartbeat replaces only kombu's own SQS transport. With another transport it does "
    "nothing.",
    "Remove broker_transport and use an sqs:// URL.",
)
BROKEN = Kind(
    "SQSHB-E005",
    "kombu can't use the broker's configuration",
    "The worker can't connect.",
    "Correct broker_url or broker_transport_options.",
)
NO_QUEUE = Kind(
    "SQSHB-E006",
    "the app has no such queue",
    "A worker that should consume from it exits.",
    "Add it to task_queues, or set task_create_missing_queues.",
)
NO_APP = Kind(
    "SQSHB-E007",
    "no Celery app was found",
    "There is nothing to check.",
    "Name the app: celery -A proj sqs-heartbeat doctor. In a Django project, import it in the "
    '__init__.py, or set HEARTBEAT_SQS_APP = "proj.celery:app".',
)
WRONG_APP = Kind(
    "SQSHB-E014",
    "the setting names no Celery app",
    "There is nothing to check.",
    'Set it to the module and the name of your app, such as "proj.celery:app". Or remove it '
    "and import the app in the __init__.py of your Django project.",
)
SEVERAL_APPS = Kind(
    "SQSHB-E015",
    "there are several Celery apps",
    "The doctor checks only one app, and can't know which one the workers run.",
    "Set HEARTBEAT_SQS_APP to the module and the name of the workers' app, such as "
    '"proj.celery:app".',
)
ENABLED = Kind(
    "SQSHB-P008",
    "the heartbeat is on",
    "sqs_heartbeat_enabled is set.",
)
ONLY_BY_FLAG = Kind(
    "SQSHB-I008",
    "the heartbeat is on only with the flag",
    "A worker that is started without the flag extends no messages.",
    "Start workers with --heartbeat-sqs, or set sqs_heartbeat_enabled = True.",
)
PLAIN_HTTP = Kind(
    "SQSHB-W016",
    "SQS is reached by plain HTTP",
    "Anyone on the network path can read the messages. kombu uses plain HTTP if broker_url "
    "names a host.",
    "Set is_secure to True in broker_transport_options, or remove the host from broker_url. "
    "kombu then derives the address from the region.",
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
    """Check the conditions without which the heartbeat does nothing."""
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
