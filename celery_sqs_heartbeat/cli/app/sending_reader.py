"""Reads which groups and ids an app's routes set for messages that it sends to FIFO queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery.app.task import Task
from celery.signals import before_task_publish

from celery_sqs_heartbeat.cli.app.app_facts import SendingFacts

_GROUP, _DUPLICATE = "MessageGroupId", "MessageDeduplicationId"
#: The types from which Celery makes a router with a table. Any other router is code.
_ROUTES = (Mapping, list, tuple)


def read_sending(app: Any) -> SendingFacts:
    """Return the groups and ids that an app's routes set, and whether code may set others."""
    routes = app.conf.task_routes
    found = list(_routes(routes))
    return SendingFacts(
        groups=frozenset(str(route[_GROUP]) for _, route in found if _GROUP in route),
        may_name_groups=bool(before_task_publish.receivers)
        or any(not isinstance(router, _ROUTES) for router in _routers(routes))
        or any(_sends_itself(task) for task in app.tasks.values()),
        deduplicated_routes=tuple(sorted(name for name, route in found if _DUPLICATE in route)),
    )


def _routes(routes: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pattern and the options of each route that has any."""
    for router in _routers(routes):
        pairs = router.items() if isinstance(router, Mapping) else router
        for pair in pairs if isinstance(router, _ROUTES) else ():
            if pair and isinstance(pair, (list, tuple)) and isinstance(pair[-1], Mapping):
                # A pattern may be a regular expression.
                yield str(getattr(pair[0], "pattern", pair[0])), pair[-1]


def _routers(routes: Any) -> Sequence[Any]:
    if routes is None:
        return ()
    return routes if isinstance(routes, (list, tuple)) else (routes,)


def _sends_itself(task: Any) -> bool:
    return type(task).apply_async is not Task.apply_async
