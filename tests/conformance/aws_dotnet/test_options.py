"""Invalid options are refused, and the error names the fault of each.

Source: aws/aws-dotnet-messaging, SQSMessagePollerOptions.Validate in src/AWS.Messaging/
Configuration, and GetInvalidSQSMessagePollerOptionsCases in test/AWS.Messaging.UnitTests/
MessageBusBuilderTests.cs, of fourteen cases.

Its settings and ours: `VisibilityTimeout`, `VisibilityTimeoutExtensionThreshold` and
`VisibilityTimeoutExtensionHeartbeatInterval` are `visibility_timeout`, `threshold` and
`interval`. `MaxNumberOfConcurrentMessages` is Celery's own here (concurrency and prefetch);
the bound that we check is `max_lease`. `WaitTimeSeconds` is kombu's, so its two cases have
no counterpart. Our settings also exist for one queue and for one task, and are checked as
strictly: eight more cases, which makes twenty.
"""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.settings import PREFIX, Settings, read_settings

#: The settings, for all tasks except in the last cases, and the text of the only fault.
INVALID: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # MaxNumberOfConcurrentMessages -1, 0
    ({"max_lease": -1}, {}, "sqs_heartbeat_max_lease=-1: must be above 0"),
    ({"max_lease": 0}, {}, "sqs_heartbeat_max_lease=0: must be above 0"),
    # VisibilityTimeout -1, 43201. It allows 0, which hides nothing; ours begins with 1.
    ({"visibility_timeout": -1}, {}, "sqs_heartbeat_visibility_timeout=-1: must be 1 to 43200"),
    ({"visibility_timeout": 43_201}, {}, "visibility_timeout=43201: must be 1 to 43200"),
    # VisibilityTimeoutExtensionThreshold -1, 0, equal to and above the timeout
    ({"threshold": -1}, {}, "sqs_heartbeat_threshold=-1: must be above 0"),
    ({"threshold": 0}, {}, "sqs_heartbeat_threshold=0: must be above 0"),
    (
        {"visibility_timeout": 5, "threshold": 5},
        {},
        "threshold=5 must be below sqs_heartbeat_visibility_timeout=5",
    ),
    (
        {"visibility_timeout": 4, "threshold": 5},
        {},
        "threshold=5 must be below sqs_heartbeat_visibility_timeout=4",
    ),
    # VisibilityTimeoutExtensionHeartbeatInterval -1, 0, equal to and above the threshold
    ({"interval": -1}, {}, "sqs_heartbeat_interval=-1: must be above 0"),
    ({"interval": 0}, {}, "sqs_heartbeat_interval=0: must be above 0"),
    ({"interval": 5, "threshold": 5}, {}, "interval=5 must be below sqs_heartbeat_threshold=5"),
    ({"interval": 6, "threshold": 5}, {}, "interval=6 must be below sqs_heartbeat_threshold=5"),
    # The same for one queue
    (
        {"queues": {"q": {"visibility_timeout": -1}}},
        {},
        "queues['q']['visibility_timeout']=-1: must be 1 to 43200",
    ),
    ({"queues": {"q": {"threshold": 0}}}, {}, "queues['q']['threshold']=0: must be above 0"),
    (
        {"queues": {"q": {"visibility_timeout": 5, "threshold": 5}}},
        {},
        "queues['q']: threshold=5 must be below visibility_timeout=5",
    ),
    (
        {"interval": 5, "queues": {"q": {"visibility_timeout": 30, "threshold": 5}}},
        {},
        "queues['q']: interval=5 must be below threshold=5",
    ),
    # and for one task
    ({}, {"max_lease": -1}, "task 't': sqs_heartbeat['max_lease']=-1: must be above 0"),
    (
        {},
        {"visibility_timeout": 43_201},
        "task 't': sqs_heartbeat['visibility_timeout']=43201: must be 1 to",
    ),
    (
        {},
        {"visibility_timeout": 4, "threshold": 5},
        "task 't': sqs_heartbeat: threshold=5 must be below visibility_timeout=4",
    ),
    (
        {"interval": 6},
        {"visibility_timeout": 30, "threshold": 5},
        "task 't': sqs_heartbeat: interval=6 must be below threshold=5",
    ),
]


def read(values: dict[str, Any], task: dict[str, Any]) -> Settings:
    conf = {PREFIX + name: value for name, value in values.items()}
    return read_settings(conf.get, names=conf, tasks={"t": task} if task else {})


def test_there_are_twenty_of_them() -> None:
    assert len(INVALID) == 20


@pytest.mark.parametrize(
    ("values", "task", "said"), INVALID, ids=[said.split(":")[0] for _, _, said in INVALID]
)
def test_an_invalid_combination_is_refused_with_its_setting_and_value(
    values: dict[str, Any], task: dict[str, Any], said: str
) -> None:
    """SQSMessagePollerConfiguration_SQSMessagePollerOptions_Invalid."""
    with pytest.raises(ConfigurationError) as caught:
        read(values, task)
    (fault,) = caught.value.faults
    assert said in fault


def test_several_wrong_options_are_listed_in_one_error() -> None:
    """Validate reports them all in one exception."""
    with pytest.raises(ConfigurationError) as caught:
        read({"max_lease": 0, "visibility_timeout": -1, "threshold": -1, "interval": 0}, {})
    assert len(caught.value.faults) == 4


def test_its_defaults_are_valid() -> None:
    settings = read({"visibility_timeout": 30, "threshold": 5, "interval": 1}, {})
    terms = settings.for_queue("q").terms(own_timeout=600)
    assert (terms.visibility_timeout, terms.threshold, settings.longest_sleep()) == (30, 5, 1)
