"""The doctor's rules about an app, its settings and its broker, which need no call to SQS."""
# ruff: noqa: D403, D415 - docstrings are what people read.

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app import AppFacts
from celery_sqs_heartbeat.cli.findings import Found, faults, when
from celery_sqs_heartbeat.settings import PREFIX

#: With a prefetch multiplier above this, most of a worker's messages only wait.
MANY_PREFETCHED = 10
#: Pools that can't stop a task.
UNSTOPPABLE = ("threads", "solo")
#: kombu's own pause after an empty poll, in seconds.
USUAL_INTERVAL = 1


def e001(any_app: AppFacts) -> list[Found]:
    """a setting is wrong

    A worker with --heartbeat-sqs exits at startup.

    Fix: Change the value as the rule says, or remove the setting.
    """
    return faults(any_app.faults)


def e002(any_app: AppFacts) -> list[Found]:
    """the broker is not SQS

    The heartbeat does nothing on other brokers.

    Fix: Set broker_url to an sqs:// URL, or remove celery-sqs-heartbeat.
    """
    is_other = any_app.broker.broken is None and not any_app.broker.is_sqs
    return when(is_other, value=any_app.broker.transport)


def e003(any_app: AppFacts) -> list[Found]:
    """install(app) was not called

    The worker has no option --heartbeat-sqs, and sqs_heartbeat_enabled does nothing.

    Fix: Where the app is made, add: from celery_sqs_heartbeat import install; install(app)
    """
    return when(not any_app.is_installed)


def e004(any_app: AppFacts) -> list[Found]:
    """the broker's transport is not kombu's own

    The heartbeat replaces only kombu's own SQS transport. With another transport it does nothing.

    Fix: Remove broker_transport and use an sqs:// URL.
    """
    own = any_app.broker.own_transport
    return when(own is not None and any_app.broker.broken is None, "broker_transport", own)


def e005(any_app: AppFacts) -> list[Found]:
    """kombu can't use the broker's configuration

    The worker can't connect.

    Fix: Correct broker_url or broker_transport_options.
    """
    return when(any_app.broker.broken is not None, value=any_app.broker.broken)


def e007() -> None:
    """no Celery app was found

    There is nothing to check.

    Fix: Name the app: celery -A proj sqs-heartbeat doctor. In a Django project, import it in the
    __init__.py, or set HEARTBEAT_SQS_APP = "proj.celery:app".
    """


def e014() -> None:
    """the setting names no Celery app

    There is nothing to check.

    Fix: Set it to the module and the name of your app, such as "proj.celery:app". Or remove it and
    import the app in the __init__.py of your Django project.
    """


def e015() -> None:
    """there are several Celery apps

    The doctor checks only one app, and can't know which one the workers run.

    Fix: Set HEARTBEAT_SQS_APP to the module and the name of the workers' app, such as
    "proj.celery:app".
    """


def p008(any_app: AppFacts) -> list[Found]:
    """the heartbeat is on

    sqs_heartbeat_enabled is set.
    """
    return when(any_app.is_installed and any_app.settings.enabled, PREFIX + "enabled", True)


def i008(any_app: AppFacts) -> list[Found]:
    """the heartbeat is on only with the flag

    A worker that is started without the flag extends no messages.

    Fix: Start workers with --heartbeat-sqs, or set sqs_heartbeat_enabled = True.
    """
    is_off = any_app.is_installed and not any_app.settings.enabled and not any_app.faults
    return when(is_off, PREFIX + "enabled", False)


def w016(any_app: AppFacts) -> list[Found]:
    """SQS is reached by plain HTTP

    Anyone on the network path can read the messages. kombu uses plain HTTP if broker_url names a
    host.

    Fix: Set is_secure to True in broker_transport_options, or remove the host from broker_url.
    kombu then derives the address from the region.
    """
    return when(any_app.broker.plain_http, value=any_app.broker.plain_http)


def w010(any_app: AppFacts) -> list[Found]:
    """a status token is set, but no status page

    Without sqs_heartbeat_status the worker serves no page, and the token has no effect.

    Fix: Set sqs_heartbeat_status, or remove the token.
    """
    is_unused = any_app.settings.status_token is not None and any_app.settings.status is None
    return when(is_unused, PREFIX + "status_token", "...")


def e011(any_app: AppFacts) -> list[Found]:
    """opentelemetry is not installed

    sqs_heartbeat_otel needs it. A worker with --heartbeat-sqs exits.

    Fix: Run pip install 'celery-sqs-heartbeat[otel]', or remove sqs_heartbeat_otel.
    """
    return when(any_app.settings.otel and not any_app.has_otel, PREFIX + "otel", True)


def e012(any_app: AppFacts) -> list[Found]:
    """the app's tasks can't be imported

    A worker exits at startup. The doctor could not check the settings of the tasks.

    Fix: Correct the module or the package that the error names.
    """
    return when(any_app.broken_tasks is not None, value=any_app.broken_tasks)


def e013(any_app: AppFacts) -> list[Found]:
    """the pool can't be used

    A worker with this pool exits.

    Fix: Correct -P or worker_pool, or install the pool's library.
    """
    return when(any_app.pool_fault is not None, "worker_pool", any_app.pool_fault)


def e401(app: AppFacts) -> list[Found]:
    """a transport option is wrong

    A worker with --heartbeat-sqs lists all such faults and exits. The doctor did not check the
    queues.

    Fix: Correct it in broker_transport_options, then run the doctor again.
    """
    return faults(app.broker.option_faults)


def w101(app: AppFacts) -> list[Found]:
    """messages are deleted before their tasks run

    If a task fails or its worker is killed, the task is lost, because its message is already
    deleted.

    Fix: Set task_acks_late = True.
    """
    return when(not app.acks_late, "task_acks_late", False)


def i102(app: AppFacts) -> list[Found]:
    """these tasks' messages are deleted before they run

    The tasks have acks_late=False. If a run is interrupted, the task is lost.

    Fix: Remove acks_late=False from these tasks, unless it is intended.
    """
    return when(app.acks_late and app.early_tasks, value=", ".join(app.early_tasks))


def w103(app: AppFacts) -> list[Found]:
    """messages of failed tasks are deleted

    If a task raises an error, SQS does not deliver its message again and does not move it to the
    dead-letter queue.

    Fix: Set this to False, unless tasks retry themselves.
    """
    return when(app.acks_late and app.acks_on_failure, app.acks_on_failure, True)


def w104(app: AppFacts) -> list[Found]:
    """messages of tasks whose process dies are deleted

    If a pool process is killed, for example by the system because memory is short, its task is
    lost.

    Fix: Set task_reject_on_worker_lost = True, and give the queues a redrive policy.
    """
    is_deleted = app.acks_late and app.acks_on_failure and not app.keeps_on_worker_lost
    return when(is_deleted, "task_reject_on_worker_lost", False)


def w105(app: AppFacts) -> list[Found]:
    """a worker receives as many messages as it can keep extended

    One worker may hold thousands of messages while other workers have nothing to do.

    Fix: Set worker_prefetch_multiplier to a value from 1 to 4.
    """
    multiplier = app.prefetch_multiplier
    return when(not multiplier, "worker_prefetch_multiplier", multiplier)


def i106(app: AppFacts) -> list[Found]:
    """a worker prefetches many messages

    They wait in this worker behind running tasks, and other workers can't receive them.

    Fix: Set worker_prefetch_multiplier to a value from 1 to 4, unless tasks take milliseconds.
    """
    multiplier = app.prefetch_multiplier
    return when(multiplier > MANY_PREFETCHED, "worker_prefetch_multiplier", multiplier)


def i107(app: AppFacts) -> list[Found]:
    """a worker holds any number of tasks with an ETA

    Each task that is due within sqs_heartbeat_hold_eta raises the number of messages that one
    worker holds and extends.

    Fix: If you use ETAs or countdowns, set worker_eta_task_limit.
    """
    return when(not app.eta_task_limit, "worker_eta_task_limit", repr(app.eta_task_limit))


def i108(app: AppFacts) -> list[Found]:
    """tasks have no time limit

    A task that hangs keeps its message until max_lease has passed, 12 hours by default.

    Fix: Set task_time_limit, or a shorter sqs_heartbeat_max_lease.
    """
    return when(app.time_limit is None, "task_time_limit", "None")


def w109(app: AppFacts) -> Iterator[Found]:
    """tasks may run longer than their messages are extended

    After max_lease the keeper stops extending the message. It becomes visible, and its task starts
    a second time.

    Fix: Set a time limit below sqs_heartbeat_max_lease, which is 12 hours at most.
    """
    rules, settings = app.settings.rules, app.settings
    leases = [settings.for_queue(queue).terms(1).max_lease for queue in settings.queues]
    # The shortest that applies.
    max_lease = min([rules.terms(1).max_lease, *leases])
    if app.time_limit is not None and app.time_limit > max_lease:
        yield Found("task_time_limit", f"{app.time_limit:g} (max_lease {max_lease:g})")
    for task in app.tasks:
        lease = rules.under(settings.tasks.get(task.name)).terms(1).max_lease
        if task.time_limit not in (None, app.time_limit) and task.time_limit > lease:
            value = f"{task.time_limit:g} (max_lease {lease:g})"
            yield Found(f"time_limit of task {task.name}", value)


def w110(app: AppFacts) -> list[Found]:
    """a task whose lease is lost can't be stopped

    sqs_heartbeat_on_lost is "terminate", and this pool can't stop a task.

    Fix: Use the prefork pool, or "revoke" and current_lease.ensure_valid() in the task.
    """
    is_stuck = app.settings.may_terminate() and app.pool in UNSTOPPABLE
    return when(is_stuck, "worker_pool", app.pool)


def w402(polled: AppFacts) -> list[Found]:
    """queues are polled without waiting

    Each worker polls each queue once in every polling_interval. This costs money even when there is
    no work, and a short poll may miss messages that are in the queue.

    Fix: Set wait_time_seconds to a value from 10 to 20 in broker_transport_options.
    """
    return when(polled.broker.wait_time == 0, "wait_time_seconds", polled.broker.wait_time)


def i404(polled: AppFacts) -> list[Found]:
    """the worker pauses for a long time after an empty poll

    A message that arrives during the pause waits until polling_interval has passed. Long polls need
    no pause.

    Fix: Set polling_interval to 1 or less, and wait_time_seconds to a value from 10 to 20.
    """
    interval = polled.broker.polling_interval
    return when(interval > USUAL_INTERVAL, "polling_interval", interval)


def i405(polled: AppFacts) -> list[Found]:
    """the transport option visibility_timeout applies only to new queues

    kombu uses it when it creates a queue. Existing and predefined queues keep their own.

    Fix: Set sqs_heartbeat_visibility_timeout, which applies to each receive.
    """
    timeout = polled.broker.created_timeout
    return when(timeout is not None, "visibility_timeout", timeout)
