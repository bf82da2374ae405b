"""The doctor's rules about an app, its settings and its broker, which need no call to SQS.

Each docstring has the texts that people read.
"""
# ruff: noqa: D205, D403 - one table, one signature; texts for people.

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app import AppFacts
from celery_sqs_heartbeat.cli.findings import Found, RuleTable, faults, when
from celery_sqs_heartbeat.settings import PREFIX

#: Rules for a worker with any broker, in which only the last step fails on another than SQS.
ANY_BROKER = RuleTable()
#: Rules for an app whose broker is SQS.
SQS = RuleTable()
#: Rules for an app whose transport options are valid. Django's checks leave these out.
POLLING = RuleTable()
#: Rules about which app there is. Who looks for it finds out.
APPS = RuleTable()

#: With a prefetch multiplier above this, most of a worker's messages only wait.
MANY_PREFETCHED = 10
#: Pools that can't stop a task.
UNSTOPPABLE = ("threads", "solo")
#: kombu's own pause after an empty poll, in seconds.
USUAL_INTERVAL = 1


@ANY_BROKER.rule("SQSHB-E001", "a setting is wrong")
def setting_fault(app: AppFacts) -> list[Found]:
    """A worker with --heartbeat-sqs exits at startup.

    Fix: Change the value as the rule says, or remove the setting.
    """
    return faults(app.faults)


@ANY_BROKER.rule("SQSHB-E002", "the broker is not SQS")
def not_sqs(app: AppFacts) -> list[Found]:
    """The heartbeat does nothing on other brokers.

    Fix: Set broker_url to an sqs:// URL, or remove celery-sqs-heartbeat.
    """
    is_other = app.broker.broken is None and not app.broker.is_sqs
    return when(is_other, value=app.broker.transport)


@ANY_BROKER.rule("SQSHB-E003", "install(app) was not called")
def not_installed(app: AppFacts) -> list[Found]:
    """The worker has no option --heartbeat-sqs, and sqs_heartbeat_enabled does nothing.

    Fix: Where the app is made, add: from celery_sqs_heartbeat import install; install(app)
    """
    return when(not app.is_installed)


@ANY_BROKER.rule("SQSHB-E004", "the broker's transport is not kombu's own")
def own_transport(app: AppFacts) -> list[Found]:
    """The heartbeat replaces only kombu's own SQS transport. With another transport it does
    nothing.

    Fix: Remove broker_transport and use an sqs:// URL.
    """
    own = app.broker.own_transport
    return when(own is not None and app.broker.broken is None, "broker_transport", own)


@ANY_BROKER.rule("SQSHB-E005", "kombu can't use the broker's configuration")
def broken_broker(app: AppFacts) -> list[Found]:
    """The worker can't connect.

    Fix: Correct broker_url or broker_transport_options.
    """
    return when(app.broker.broken is not None, value=app.broker.broken)


@APPS.rule("SQSHB-E007", "no Celery app was found")
def no_app() -> list[Found]:
    """There is nothing to check.

    Fix: Name the app: celery -A proj sqs-heartbeat doctor. In a Django project, import it in the
    __init__.py, or set HEARTBEAT_SQS_APP = "proj.celery:app".
    """
    return []


@APPS.rule("SQSHB-E014", "the setting names no Celery app")
def wrong_app() -> list[Found]:
    """There is nothing to check.

    Fix: Set it to the module and the name of your app, such as "proj.celery:app". Or remove it and
    import the app in the __init__.py of your Django project.
    """
    return []


@APPS.rule("SQSHB-E015", "there are several Celery apps")
def several_apps() -> list[Found]:
    """The doctor checks only one app, and can't know which one the workers run.

    Fix: Set HEARTBEAT_SQS_APP to the module and the name of the workers' app, such as
    "proj.celery:app".
    """
    return []


@ANY_BROKER.rule("SQSHB-P008", "the heartbeat is on")
def enabled(app: AppFacts) -> list[Found]:
    """sqs_heartbeat_enabled is set."""
    return when(app.is_installed and app.settings.enabled, PREFIX + "enabled", True)


@ANY_BROKER.rule("SQSHB-I008", "the heartbeat is on only with the flag")
def only_by_flag(app: AppFacts) -> list[Found]:
    """A worker that is started without the flag extends no messages.

    Fix: Start workers with --heartbeat-sqs, or set sqs_heartbeat_enabled = True.
    """
    is_off = app.is_installed and not app.settings.enabled and not app.faults
    return when(is_off, PREFIX + "enabled", False)


@ANY_BROKER.rule("SQSHB-W016", "SQS is reached by plain HTTP")
def plain_http(app: AppFacts) -> list[Found]:
    """Anyone on the network path can read the messages. kombu uses plain HTTP if broker_url names a
    host.

    Fix: Set is_secure to True in broker_transport_options, or remove the host from broker_url.
    kombu then derives the address from the region.
    """
    return when(app.broker.plain_http, value=app.broker.plain_http)


@ANY_BROKER.rule("SQSHB-W010", "a status token is set, but no status page")
def unused_token(app: AppFacts) -> list[Found]:
    """Without sqs_heartbeat_status the worker serves no page, and the token has no effect.

    Fix: Set sqs_heartbeat_status, or remove the token.
    """
    is_unused = app.settings.status_token is not None and app.settings.status is None
    return when(is_unused, PREFIX + "status_token", "...")


@ANY_BROKER.rule("SQSHB-E011", "opentelemetry is not installed")
def no_otel(app: AppFacts) -> list[Found]:
    """sqs_heartbeat_otel needs it. A worker with --heartbeat-sqs exits.

    Fix: Run pip install 'celery-sqs-heartbeat[otel]', or remove sqs_heartbeat_otel.
    """
    return when(app.settings.otel and not app.has_otel, PREFIX + "otel", True)


@ANY_BROKER.rule("SQSHB-E012", "the app's tasks can't be imported")
def broken_tasks(app: AppFacts) -> list[Found]:
    """A worker exits at startup. The doctor could not check the settings of the tasks.

    Fix: Correct the module or the package that the error names.
    """
    return when(app.broken_tasks is not None, value=app.broken_tasks)


@ANY_BROKER.rule("SQSHB-E013", "the pool can't be used")
def no_pool(app: AppFacts) -> list[Found]:
    """A worker with this pool exits.

    Fix: Correct -P or worker_pool, or install the pool's library.
    """
    return when(app.pool_fault is not None, "worker_pool", app.pool_fault)


@SQS.rule("SQSHB-E401", "a transport option is wrong")
def wrong_option(app: AppFacts) -> list[Found]:
    """A worker with --heartbeat-sqs lists all such faults and exits. The doctor did not check the
    queues.

    Fix: Correct it in broker_transport_options, then run the doctor again.
    """
    return faults(app.broker.option_faults)


@SQS.rule("SQSHB-W101", "messages are deleted before their tasks run")
def acked_early(app: AppFacts) -> list[Found]:
    """If a task fails or its worker is killed, the task is lost, because its message is already
    deleted.

    Fix: Set task_acks_late = True.
    """
    return when(not app.acks_late, "task_acks_late", False)


@SQS.rule("SQSHB-I102", "these tasks' messages are deleted before they run")
def tasks_acked_early(app: AppFacts) -> list[Found]:
    """The tasks have acks_late=False. If a run is interrupted, the task is lost.

    Fix: Remove acks_late=False from these tasks, unless it is intended.
    """
    return when(app.acks_late and app.early_tasks, value=", ".join(app.early_tasks))


@SQS.rule("SQSHB-W103", "messages of failed tasks are deleted")
def failed_deleted(app: AppFacts) -> list[Found]:
    """If a task raises an error, SQS does not deliver its message again and does not move it to the
    dead-letter queue.

    Fix: Set this to False, unless tasks retry themselves.
    """
    return when(app.acks_late and app.acks_on_failure, app.acks_on_failure, True)


@SQS.rule("SQSHB-W104", "messages of tasks whose process dies are deleted")
def lost_deleted(app: AppFacts) -> list[Found]:
    """If a pool process is killed, for example by the system because memory is short, its task is
    lost.

    Fix: Set task_reject_on_worker_lost = True, and give the queues a redrive policy.
    """
    is_deleted = app.acks_late and app.acks_on_failure and not app.keeps_on_worker_lost
    return when(is_deleted, "task_reject_on_worker_lost", False)


@SQS.rule("SQSHB-W105", "a worker receives as many messages as it can keep extended")
def unbounded_prefetch(app: AppFacts) -> list[Found]:
    """One worker may hold thousands of messages while other workers have nothing to do.

    Fix: Set worker_prefetch_multiplier to a value from 1 to 4.
    """
    multiplier = app.prefetch_multiplier
    return when(not multiplier, "worker_prefetch_multiplier", multiplier)


@SQS.rule("SQSHB-I106", "a worker prefetches many messages")
def much_prefetched(app: AppFacts) -> list[Found]:
    """They wait in this worker behind running tasks, and other workers can't receive them.

    Fix: Set worker_prefetch_multiplier to a value from 1 to 4, unless tasks take milliseconds.
    """
    multiplier = app.prefetch_multiplier
    return when(multiplier > MANY_PREFETCHED, "worker_prefetch_multiplier", multiplier)


@SQS.rule("SQSHB-I107", "a worker holds any number of tasks with an ETA")
def unbounded_etas(app: AppFacts) -> list[Found]:
    """Each task that is due within sqs_heartbeat_hold_eta raises the number of messages that one
    worker holds and extends.

    Fix: If you use ETAs or countdowns, set worker_eta_task_limit.
    """
    return when(not app.eta_task_limit, "worker_eta_task_limit", repr(app.eta_task_limit))


@SQS.rule("SQSHB-I108", "tasks have no time limit")
def no_time_limit(app: AppFacts) -> list[Found]:
    """A task that hangs keeps its message until max_lease has passed, 12 hours by default.

    Fix: Set task_time_limit, or a shorter sqs_heartbeat_max_lease.
    """
    return when(app.time_limit is None, "task_time_limit", "None")


@SQS.rule("SQSHB-W109", "tasks may run longer than their messages are extended")
def time_limit_too_long(app: AppFacts) -> Iterator[Found]:
    """After max_lease the keeper stops extending the message. It becomes visible, and its task
    starts a second time.

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


@SQS.rule("SQSHB-W110", "a task whose lease is lost can't be stopped")
def cant_terminate(app: AppFacts) -> list[Found]:
    """sqs_heartbeat_on_lost is "terminate", and this pool can't stop a task.

    Fix: Use the prefork pool, or "revoke" and current_lease.ensure_valid() in the task.
    """
    is_stuck = app.settings.may_terminate() and app.pool in UNSTOPPABLE
    return when(is_stuck, "worker_pool", app.pool)


@POLLING.rule("SQSHB-W402", "queues are polled without waiting")
def short_polls(app: AppFacts) -> list[Found]:
    """Each worker polls each queue once in every polling_interval. This costs money even when there
    is no work, and a short poll may miss messages that are in the queue.

    Fix: Set wait_time_seconds to a value from 10 to 20 in broker_transport_options.
    """
    return when(app.broker.wait_time == 0, "wait_time_seconds", app.broker.wait_time)


@POLLING.rule("SQSHB-I404", "the worker pauses for a long time after an empty poll")
def long_pauses(app: AppFacts) -> list[Found]:
    """A message that arrives during the pause waits until polling_interval has passed. Long polls
    need no pause.

    Fix: Set polling_interval to 1 or less, and wait_time_seconds to a value from 10 to 20.
    """
    interval = app.broker.polling_interval
    return when(interval > USUAL_INTERVAL, "polling_interval", interval)


@POLLING.rule("SQSHB-I405", "the transport option visibility_timeout applies only to new queues")
def timeout_of_new_queues(app: AppFacts) -> list[Found]:
    """kombu uses it when it creates a queue. Existing and predefined queues keep their own.

    Fix: Set sqs_heartbeat_visibility_timeout, which applies to each receive.
    """
    timeout = app.broker.created_timeout
    return when(timeout is not None, "visibility_timeout", timeout)
