"""The replay of settings over measured times, without Spark."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, LeaseTerms
from celery_sqs_heartbeat.pipeline.tables.bins import bin_of
from celery_sqs_heartbeat.pipeline.tuning.choosing import (
    RISK_CAP,
    choose,
    needs_its_own,
    pareto,
    raised,
)
from celery_sqs_heartbeat.pipeline.tuning.comparing import compare
from celery_sqs_heartbeat.pipeline.tuning.confidence import (
    confidence_of,
    how_sure,
    least_risk,
    part_of_attempts,
)
from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram
from celery_sqs_heartbeat.pipeline.tuning.lateness import chance_too_late
from celery_sqs_heartbeat.pipeline.tuning.measured import Fleet, Measured
from celery_sqs_heartbeat.pipeline.tuning.reasons import reason_of
from celery_sqs_heartbeat.pipeline.tuning.replay import Expected, Worth, candidates, replay
from celery_sqs_heartbeat.settings.rules import order_faults

WORTH = Worth()


def _seconds(spans: Sequence[float], censored: Sequence[float] = ()) -> Histogram:
    return Histogram(*(Counter(bin_of(each * 1e6) for each in them) for them in (spans, censored)))


def _measured(spans: Sequence[float], **fields: Any) -> Measured:
    base = {
        "queue": "work",
        "task": None,
        "held": _seconds(spans),
        "run": _seconds(spans),
        "latency": _seconds([0.05] * 10_000),
    }
    return Measured(**{**base, **fields})


def _exponential(mean: float, number: int = 10_000) -> list[float]:
    chance = random.Random(7)
    return [chance.expovariate(1 / mean) for _ in range(number)]


@pytest.mark.parametrize(
    ("held", "extensions"),
    [
        pytest.param(19, 0, id="over before the first"),
        pytest.param(21, 1, id="just one"),
        pytest.param(85, 4, id="one for each 20 s"),
    ],
)
def test_an_extension_is_due_once_in_timeout_less_threshold(held: float, extensions: int) -> None:
    expected = replay(_measured([held]), LeaseTerms.of(30, 10), WORTH)
    assert expected.calls_per_1000 == pytest.approx(1000 * extensions)


def test_entries_that_share_a_call_make_fewer_calls() -> None:
    expected = replay(_measured([85], entries_per_call=8.0), LeaseTerms.of(30, 10), WORTH)
    assert expected.calls_per_1000 == pytest.approx(500)


@pytest.mark.parametrize("mean", [5.0, 40.0, 400.0])
def test_recovery_is_what_is_left_of_the_lease_at_a_random_moment(mean: float) -> None:
    held, chance = _exponential(mean), random.Random(3)
    crashed = chance.choices(held, weights=held, k=40_000)
    left = [30 - chance.uniform(0, span) % 20 for span in crashed]
    expected = replay(_measured(held), LeaseTerms.of(30, 10), WORTH)
    assert expected.recovery_s == pytest.approx(sum(left) / len(left), rel=0.02)


def test_the_risk_compounds_over_the_extensions() -> None:
    latency = _seconds([0.05] * 9_900 + [20.0] * 100)
    expected = replay(_measured([85], latency=latency), LeaseTerms.of(30, 10), WORTH)
    assert expected.risk == pytest.approx(1 - 0.99**4)


@pytest.mark.parametrize(
    ("latency", "threshold", "bound"),
    [
        pytest.param([0.1] * 98 + [20.0] * 2, 10, 0.02, id="as often as it was seen"),
        pytest.param([0.1] * 300, 0.1, 0.01, id="3 / n at the edge of what was seen"),
        pytest.param([0.1] * 300, 1.0, 0.0001, id="less, the farther out"),
        pytest.param([], 10.0, 0.0003, id="as if 100 calls had been seen"),
    ],
)
def test_the_chance_of_a_late_call(latency: list[float], threshold: float, bound: float) -> None:
    measured = _measured([1], latency=_seconds(latency))
    assert chance_too_late(measured, threshold) == pytest.approx(bound, rel=0.05)


def test_a_stalled_keeper_is_late_for_what_is_due_early_in_the_stall() -> None:
    hour = 3_600_000_000
    fleet = Fleet(stalls=_seconds([30.0, 30.0, 4.0]), worker_us=hour)
    calm = chance_too_late(_measured([1]), 10)
    stalled = chance_too_late(_measured([1], fleet=fleet), 10)
    assert stalled - calm == pytest.approx(2 * (30 - 10 + 0.05) / 3600, rel=0.02)


def test_no_candidate_breaks_a_rule_of_the_settings() -> None:
    for terms in candidates(_measured([1])):
        assert not [*order_faults(terms, min(1.0, terms.threshold / 2))]


def test_a_setting_with_too_many_calls_for_one_keeper_is_no_candidate() -> None:
    crowd = candidates(_measured([1], fleet=Fleet(concurrency=2_000)))
    assert min(terms.visibility_timeout - terms.threshold for terms in crowd) >= 25


def test_no_candidate_on_the_curve_is_beaten_by_another() -> None:
    measured = _measured(_exponential(60))
    curve = choose(measured, WORTH).curve
    tried = [replay(measured, terms, WORTH) for terms in candidates(measured)]
    assert len(curve) > 5
    for each in curve:
        assert not [
            other
            for other in tried
            if other.calls_per_1000 <= each.calls_per_1000 and other.recovery_s < each.recovery_s
        ]
    assert pareto(curve) == list(curve)


def test_the_choice_has_the_least_objective_of_those_that_are_safe() -> None:
    measured = _measured(_exponential(60))
    tried = [replay(measured, terms, WORTH) for terms in candidates(measured)]
    best = choose(measured, WORTH).best
    assert best.objective == min(one.objective for one in tried if one.risk <= RISK_CAP)


def test_more_expensive_waiting_shortens_the_timeout_and_longer_tasks_lengthen_it() -> None:
    minutes, hours = _measured(_exponential(60)), _measured(_exponential(3600))
    usual = choose(minutes, WORTH).best.visibility_timeout
    hurried = choose(minutes, replace(WORTH, waiting_second=0.01)).best.visibility_timeout
    assert hurried < usual < choose(hours, WORTH).best.visibility_timeout


def test_crashes_that_were_seen_shorten_the_timeout() -> None:
    calm, stormy = _measured(_exponential(600)), _measured(_exponential(600), crashes=500)
    assert (
        choose(stormy, WORTH).best.visibility_timeout < choose(calm, WORTH).best.visibility_timeout
    )


def test_slow_calls_lead_to_a_threshold_that_outlasts_them() -> None:
    slow = _measured(_exponential(60), latency=_seconds([0.1] * 9_000 + [12.0] * 1_000))
    assert choose(slow, WORTH).best.threshold > 12


def test_where_nothing_is_safe_the_least_risk_is_chosen_and_reported() -> None:
    awful = _measured([40_000] * 1_000, latency=_seconds([0.1] * 500 + [25_000.0] * 500))
    choice = choose(awful, WORTH)
    assert choice.best.risk == min(replay(awful, terms, WORTH).risk for terms in candidates(awful))
    assert choice.best.risk > RISK_CAP
    assert not choice.is_safe
    reason = reason_of(awful, choice.best, is_safe=choice.is_safe)
    assert (
        "Every candidate loses more than 1 of 10,000 leases. This one loses the fewest." in reason
    )


@pytest.mark.parametrize(
    ("held", "running", "expected"),
    [
        pytest.param([100.0] * 2_000, DEFAULT_MAX_LEASE_SECONDS, None, id="no limit, and none new"),
        pytest.param([100.0] * 2_000, 600, None, id="never lower"),
        pytest.param([1_000.0] * 2_000, 600, 3_000, id="three times the longest"),
        pytest.param([40_000.0] * 2_000, 600, DEFAULT_MAX_LEASE_SECONDS, id="SQS's limit"),
    ],
)
def test_max_lease_is_only_raised(
    held: list[float], running: float, expected: float | None
) -> None:
    assert raised(_measured(held), running) == pytest.approx(expected or running, rel=0.03)


@pytest.mark.parametrize(
    ("task", "number", "own"),
    [(3_000.0, 2_000, True), (3_000.0, 20, False), (1_100.0, 2_000, False), (10.0, 2_000, True)],
)
def test_a_task_has_its_own_settings_when_it_differs_and_is_known_well(
    task: float, number: int, own: bool
) -> None:
    queue = _measured([1_000.0] * 50_000)
    assert needs_its_own(_measured([task] * number, task="proj.own"), queue) is own


@pytest.mark.parametrize(
    ("ended", "running", "calls", "expected"),
    [
        (10_000, 0, 1_000, "high"),
        (10_000, 0, 0, "medium"),
        (1_000, 0, 1_000, "medium"),
        (999, 0, 1_000, "low"),
        (10_000, 10_001, 1_000, "low"),
    ],
)
def test_confidence_is_by_how_much_was_seen(
    ended: int, running: int, calls: int, expected: str
) -> None:
    held = _seconds([1.0] * ended, [1.0] * running)
    measured = _measured([], held=held, latency=_seconds([0.1] * calls))
    assert confidence_of(measured) == expected


@pytest.mark.parametrize(
    ("ended", "running", "risk", "said"),
    [
        (322, 0, 5e-9, "less than 1 of 107"),
        (322, 0, 0.0, "less than 1 of 107"),
        (322, 0, 0.02, "1 of 50"),
        (322, 5_000, 0.001, "less than 1 of 107"),
        (300_000, 0, 1e-4, "1 of 10,000"),
        (6, 0, 0.001, "less than 1 of 2"),
        # Less than 1 of 1 would mean nothing, and 5 attempts do not show less than 1 of 2.
        (5, 0, 0.001, ""),
        (3, 0, 0.5, ""),
        (0, 0, 0.0, ""),
    ],
)
def test_no_chance_is_given_beyond_what_the_attempts_can_show(
    ended: int, running: int, risk: float, said: str
) -> None:
    measured = _measured([], held=_seconds([1.0] * ended, [1.0] * running))
    assert part_of_attempts(risk, least_risk(measured)) == said


@pytest.mark.parametrize(
    ("ended", "running", "calls", "said"),
    [
        (1, 0, 0, "Confidence is low: 1 attempt has ended, 1,000 are needed for medium."),
        (9, 3, 0, "Confidence is low: 9 of 12 attempts have ended, 1,000 are needed for medium."),
        (4, 8, 0, "Confidence is low: only 4 of 12 attempts have ended."),
        (
            1_500,
            0,
            0,
            "Confidence is medium: 1,500 attempts have ended, 10,000 are needed for high.",
        ),
        (
            20_000,
            1,
            1,
            "Confidence is medium: 1 extension call with a known time, 1,000 are needed for high.",
        ),
        (20_000, 0, 1_000, "Confidence is high: 20,000 attempts have ended."),
    ],
)
def test_how_sure_it_is_counts_attempts_that_ended_and_nothing_else(
    ended: int, running: int, calls: int, said: str
) -> None:
    held = _seconds([1.0] * ended, [1.0] * running)
    assert how_sure(_measured([], held=held, latency=_seconds([0.1] * calls))) == said


@pytest.mark.parametrize(
    ("held", "running", "said"),
    [
        ([45.01] * 322, [], "for at most 45.1 s, and the longest for at most 45.1 s."),
        ([45.01] * 2_000, [], "for at most 45.1 s, and 999 of 1,000 for at most 45.1 s."),
        ([0.0139] * 9, [80.0] * 3, "for at most 14 ms, and the longest attempts had not ended."),
        ([1.0], [80.0] * 3, "The longest attempts had not ended."),
        ([45.01], [], "The longest attempt holds its message for at most 45.1 s."),
    ],
)
def test_no_attempt_takes_longer_than_is_said(
    held: list[float], running: list[float], said: str
) -> None:
    measured = _measured([], held=_seconds(held, running))
    reason = reason_of(measured, choose(measured, WORTH).best)
    assert said in reason


def test_the_expected_values_stand_beside_those_in_use() -> None:
    measured = _measured([85.0] * 2_000)
    best, in_use = (
        replay(measured, LeaseTerms.of(*terms), WORTH) for terms in ((400, 100), (30, 10))
    )
    assert "1,000 attempts would take 0 extension calls. After a crash" in reason_of(measured, best)
    said = reason_of(measured, best, why="they are better", in_use=in_use)
    assert said.startswith(
        "They are better. 1,000 attempts would take 0 extension calls instead of 4,000. After a "
        "crash, a message would be visible again in 357 s instead of 20 s. Less than 1 of 666 "
        "attempts would lose its lease; the data cannot show less."
    )


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        (1_000, r"extensions may come too late in more than 1 of 10,000 attempts, which is "),
        (
            300_000,
            r"extensions would come too late in 1 of 2,\d\d\d attempts: more than 1 of 10,000 ",
        ),
    ],
)
def test_settings_beyond_the_risk_are_worse_by_no_finer_figure_than_was_seen(
    attempts: int, said: str
) -> None:
    one_in_2_000_is_slow = _seconds([0.05] * 1_999 + [15.0])
    measured = _measured([25.0] * attempts, latency=one_in_2_000_is_slow)
    fault = compare(measured, LeaseTerms.of(30, 10), choose(measured, WORTH), WORTH).fault
    assert re.match(said, fault)


def test_settings_are_worse_only_by_a_margin_and_on_enough_data() -> None:
    measured, thin = _measured(_exponential(60)), _measured(_exponential(60, 100))
    choice = choose(measured, WORTH)
    best = LeaseTerms.of(choice.best.visibility_timeout, choice.best.threshold)
    nearly = LeaseTerms.of(best.visibility_timeout + 5, best.threshold)
    silly = LeaseTerms.of(36_000)
    assert [compare(measured, terms, choice, WORTH).fault for terms in (best, nearly)] == ["", ""]
    assert re.search(
        rf"would cost \d+\.\d times as much as with visibility_timeout={best.visibility_timeout} ",
        compare(measured, silly, choice, WORTH).fault,
    )
    unsure = compare(thin, silly, choice, WORTH)
    assert (unsure.fault, unsure.confidence) == ("", "low")


def test_a_max_lease_that_cuts_tasks_off_is_worse() -> None:
    measured = _measured(_exponential(60))
    choice = choose(measured, WORTH)
    terms = replace(LeaseTerms.of(choice.best.visibility_timeout), max_lease=120.0)
    assert "max_lease=120" in compare(measured, terms, choice, WORTH).fault


def test_nothing_measured_still_gives_a_choice() -> None:
    choice = choose(_measured([]), WORTH)
    assert isinstance(choice.best, Expected)
