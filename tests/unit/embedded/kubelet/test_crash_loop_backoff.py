from __future__ import annotations

import pytest

from dlop.embedded.kubelet.crash_loop_backoff import (
    BackoffPolicy,
    ContainerRole,
    RestartBackoff,
    container_role,
    format_go_duration,
    should_restart,
)
from dlop.kube.types import JsonObject


def _delays(backoff: RestartBackoff, *, runs: int, run_seconds: float) -> list[float]:
    """The delays before the restarts of a container whose runs all take the same time."""
    now, delays = 0.0, []
    for _ in range(runs):
        ended_at = now + run_seconds
        now = backoff.restart_at(ended_at=ended_at)
        delays.append(now - ended_at)
        backoff.record_restart(now=now)
    return delays


def test_the_restart_delay_doubles_from_ten_seconds_to_five_minutes() -> None:
    assert _delays(RestartBackoff(BackoffPolicy()), runs=9, run_seconds=1.0) == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_run_of_more_than_ten_minutes_resets_the_delay() -> None:
    assert _delays(RestartBackoff(BackoffPolicy()), runs=3, run_seconds=601.0) == [0, 0, 0]


def test_a_run_of_less_than_ten_minutes_keeps_the_delay() -> None:
    assert _delays(RestartBackoff(BackoffPolicy()), runs=3, run_seconds=599.0) == [0, 10, 20]


@pytest.mark.parametrize(
    ("policy", "exit_code", "expected"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 0, False), ("Never", 1, False)],
)
def test_the_restart_policy_of_the_pod_applies(policy: str, exit_code: int, expected: bool) -> None:
    assert should_restart({"spec": {"restartPolicy": policy}}, {}, role=ContainerRole.MAIN, exit_code=exit_code) is expected


@pytest.mark.parametrize(("policy", "exit_code", "expected"), [("Always", 0, False), ("Always", 1, True), ("Never", 1, False)])
def test_an_init_container_that_succeeded_is_not_restarted(policy: str, exit_code: int, expected: bool) -> None:
    assert should_restart({"spec": {"restartPolicy": policy}}, {}, role=ContainerRole.INIT, exit_code=exit_code) is expected


def test_a_sidecar_is_always_restarted() -> None:
    sidecar: JsonObject = {"restartPolicy": "Always"}
    role = container_role(sidecar, is_init=True)
    assert role is ContainerRole.SIDECAR
    assert should_restart({"spec": {"restartPolicy": "Never"}}, sidecar, role=role, exit_code=0)


def test_a_restart_rule_overrides_the_restart_policy() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [1, 2]}}
    container = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    restarted = [code for code in range(5) if should_restart({"spec": {}}, container, role=ContainerRole.MAIN, exit_code=code)]
    assert restarted == [0, 3, 4]


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (160, "2m40s"), (300, "5m0s"), (0.2, "200ms"), (3661, "1h1m1s")])
def test_durations_are_formatted_as_in_go(seconds: float, text: str) -> None:
    assert format_go_duration(seconds) == text
