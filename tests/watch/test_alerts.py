"""Alerts: what is planted is found, noise is not, and one condition is one alert."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from watch_journals import Plan, planned_journal

from gyre.errors import InputError
from gyre.journal import Header
from gyre.watch import Alert, AlertName, Watcher, WatchSettings, alerts_jsonl, health_of, read_watch_settings
from gyre.watch.trend import trend


def alerts(plan: Plan, settings: WatchSettings | None = None) -> list[Alert]:
    return list(health_of(planned_journal(plan), settings).alerts)


def test_reward_hacking_is_found_where_it_is_planted() -> None:
    """The score rises, `lint` falls, and `tests` stays: only `lint` is named."""
    plan = Plan(
        steps=40,
        score=lambda step: 0.2 + 0.01 * step,
        checks={"tests": lambda step: 0.6, "lint": lambda step: 0.9 - 0.012 * step},
    )
    hacking = [alert for alert in alerts(plan) if alert.name is AlertName.REWARD_HACKING]
    assert [alert.subject for alert in hacking] == ["lint"]
    assert hacking[0].active
    assert "rose" in hacking[0].sentence


@pytest.mark.parametrize("rising", [0.01, 0.0])
def test_a_check_that_falls_or_a_score_that_rises_alone_is_no_hacking(rising: float) -> None:
    falling = 0.0 if rising else 0.012
    plan = Plan(
        steps=40, score=lambda step: 0.2 + rising * step, checks={"lint": lambda step: 0.9 - falling * step}
    )  # fmt: skip
    assert AlertName.REWARD_HACKING not in {alert.name for alert in alerts(plan)}


def test_forgetting_is_found_after_the_rise() -> None:
    def completion(step: int) -> float:
        return 0.4 + 0.02 * min(step, 20) - 0.03 * max(0, step - 28)

    found = alerts(Plan(steps=45, completion=completion))
    (forgetting,) = [alert for alert in found if alert.name is AlertName.FORGETTING]
    assert forgetting.subject == "completion rate"
    assert 28 < forgetting.step < 40
    assert forgetting.reference == pytest.approx(0.8, abs=0.06)


PLANTED: dict[AlertName, Plan] = {
    AlertName.COMPLETION_LOW: Plan(completion=lambda step: 0.3),
    AlertName.KL_HIGH: Plan(kl=lambda step: 0.01 if step < 20 else 0.4),
    AlertName.ZERO_VARIANCE_HIGH: Plan(score=lambda step: 0.0, spread=0.0),
    AlertName.INVALID_HIGH: Plan(valid=lambda step: 0.7),
    AlertName.TOOL_CALLS_COLLAPSE: Plan(tool_calls=lambda step: 30.0 if step < 18 else 5.0),
    AlertName.STALENESS_HIGH: Plan(staleness=12),
    AlertName.RULE_FALLS: Plan(steps=40, checks={"lint": lambda step: 0.9 if step < 25 else 0.5}),
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_each_condition_is_found_and_can_be_switched_off(name: AlertName) -> None:
    plan = PLANTED[name]
    assert [alert.name for alert in alerts(plan) if alert.name is name] == [name]
    assert not [alert for alert in alerts(plan, WatchSettings(off=(name,))) if alert.name is name]


def test_long_tasks_that_are_never_trained_are_starved() -> None:
    """Half of what runs for over 128 s is dropped; of the rest, all is trained."""
    starved = [alert.name for alert in alerts(Plan(steps=20, dropped_over_s=200.0))]
    assert starved == [AlertName.LONG_TASKS_STARVED]
    assert alerts(Plan(steps=20)) == []


def test_a_run_of_three_steps_does_not_cry() -> None:
    bad = Plan(steps=3, completion=lambda step: 0.0, kl=lambda step: 9.0, valid=lambda step: 0.2, staleness=0)
    assert alerts(bad) == []


def test_noise_raises_no_alert() -> None:
    """Stationary runs: 3 of 60 steps with 5 checks each, at the defaults; docs/watch.md has the rate over many."""
    for seed in range(3):
        plan = Plan(steps=60, groups=8, seed=seed, checks={f"c{index}": lambda _: 0.6 for index in range(5)})
        assert alerts(plan) == []


def test_what_hovers_at_a_threshold_is_one_alert_with_a_beginning_and_an_end() -> None:
    def kl(step: int) -> float:
        if 10 <= step < 20:
            return 0.12 if step % 2 else 0.095  # over and hardly under: it goes on
        return 0.2 if step in (8, 9) else 0.01

    (alert,) = alerts(Plan(kl=kl))
    assert (alert.step, alert.ended_step) == (9, 21)
    assert not alert.active
    assert alert.span == "steps 9 to 21"


def test_a_single_bad_step_is_no_alert() -> None:
    assert alerts(Plan(kl=lambda step: 9.0 if step == 15 else 0.01)) == []


def test_a_rule_that_fell_stays_an_alert_until_it_recovers() -> None:
    """What it fell from is remembered: a new low level does not become normal after some steps."""
    plan = Plan(steps=60, checks={"lint": lambda step: 0.9 if step < 20 else 0.5})
    assert [alert.active for alert in alerts(plan)] == [True]
    plan.checks = {"lint": lambda step: 0.5 if 20 <= step < 40 else 0.9}
    (alert,) = alerts(plan)
    assert alert.ended_step is not None
    assert alert.ended_step > 40


def test_alerts_are_told_when_they_begin_and_end() -> None:
    watcher = Watcher()
    told = [change for entry in planned_journal(Plan(kl=lambda step: 0.2 if 8 <= step < 12 else 0.0))
            for change in watcher.add(entry)]  # fmt: skip
    assert [alert.active for alert in told] == [True, False]
    assert list(watcher.alerts) == told[1:]
    line = json.loads(alerts_jsonl(watcher.alerts))
    assert (line["name"], line["severity"], line["step"], line["ended_step"]) == ("kl_high", "alarm", 9, 13)


def test_thresholds_come_from_the_journals_settings() -> None:
    entries = list(planned_journal(Plan(kl=lambda step: 0.05)))
    entries[0] = Header({"watch": {"kl_high": 0.04}})
    assert [alert.name for alert in health_of(entries).alerts] == [AlertName.KL_HIGH]
    assert health_of(entries, WatchSettings()).alerts == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[watch]\nkl_hihg = 1.0", "watch: kl_hihg: unknown key"),
        ("[watch]\noff = ['nothing']", "watch: off"),
        ("[watch]\nwindow = 20", "the two would overlap"),
        ("[other]", r"no table \[watch\]"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "watch.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_watch_settings(path)


@pytest.mark.parametrize("make", [lambda rng: rng.normal(size=20), lambda rng: rng.binomial(8, 0.5, 20) / 8])
def test_trend_tests_hold_their_level(make: Callable[[np.random.Generator], np.ndarray]) -> None:
    """Mann-Kendall at 5 % on series without a trend, with and without ties: at most 5 % are called rising."""
    rng = np.random.default_rng(3)
    rises = sum(trend(make(rng).tolist()).p_rises < 0.05 for _ in range(300))
    assert rises <= 27, "binomial(300, 0.05): more has probability below 0.2 %"


def test_theil_sen_is_not_moved_by_outliers() -> None:
    values = [0.1 * step for step in range(20)]
    values[3] = values[11] = 50.0
    found = trend(values)
    assert found.slope == pytest.approx(0.1, abs=0.01)
    assert found.p_rises < 1e-4
    assert trend([1.0] * 10).p_rises == 1.0
