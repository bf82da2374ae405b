"""Shoryuken: two bugs.

Source: ruby-shoryuken/shoryuken, lib/shoryuken/middleware/server/auto_extend_visibility.rb
(EXTEND_UPFRONT_SECONDS = 5 taken off the queue's timeout).
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import PREFIX, read_settings
from tests.conformance.bugs_others_had.shutdown import shut_down_warmly
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Trip


@pytest.mark.parametrize("timeout", [1, 2, 3, 4, 5, 6])
def test_a_short_timeout_leaves_an_interval_and_a_margin(timeout: int) -> None:
    """With a timeout of 5 s or less its interval was 0 or less: a storm, or no extension."""
    conf = {PREFIX + "visibility_timeout": timeout}
    settings = read_settings(conf.get, names=conf)
    terms = settings.for_queue("work").terms(timeout)
    assert 0 < settings.longest_sleep() < terms.threshold < timeout

    bench = ConsumerHarness(terms, interval=settings.longest_sleep())
    bench.through(lambda call: Trip(there=0.05, back=0.05))
    bench.process("a", takes=60)
    bench.run(until=70)
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
    assert len(bench.asked("extend", "a")) <= 60 / timeout * 2
    assert bench.message("a").is_deleted


def test_extending_ends_with_each_job_and_not_with_the_signal() -> None:
    """Its extender stopped at the signal, while jobs still had time to end."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    ends = {"short": 40, "long": 400, "longest": 4000}
    for name, takes in ends.items():
        bench.process(name, takes=takes)
    bench.at(5, shut_down_warmly)
    bench.run(until=5000)
    assert bench.lapses == []
    for name, takes in ends.items():
        assert takes - 30 < bench.asked("extend", name)[-1] < takes
        # The last one waits for no other, to share a call.
        assert bench.asked("delete", name) == [takes if name == "longest" else takes + 0.05]
    assert len(bench.keeper) == 0
