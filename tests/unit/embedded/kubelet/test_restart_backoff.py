from __future__ import annotations

import pytest

from dlop.embedded.kubelet.restart_backoff import CrashLoop, RestartPace, Role, duration_text, is_restarted, role_of
from dlop.kube.types import JsonObject


def _delays(loop: CrashLoop, *, runs: int, run_seconds: float) -> list[float]:
    """How long each of the restarts waits, of a container whose runs all take as long."""
    now, delays = 0.0, []
    for _ in range(runs):
        ended_at = now + run_seconds
        now = loop.restart_at(ended_at=ended_at)
        delays.append(now - ended_at)
        loop.restarted(now=now)
    return delays


def test_restarts_wait_ten_seconds_and_then_twice_as_long_up_to_five_minutes() -> None:
    assert _delays(CrashLoop(RestartPace()), runs=9, run_seconds=1.0) == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_after_ten_minutes_without_a_restart_the_next_one_is_a_first_one() -> None:
    assert _delays(CrashLoop(RestartPace()), runs=3, run_seconds=601.0) == [0, 0, 0]


def test_a_run_of_less_than_ten_minutes_forgives_nothing() -> None:
    assert _delays(CrashLoop(RestartPace()), runs=3, run_seconds=599.0) == [0, 10, 20]


@pytest.mark.parametrize(
    ("policy", "exit_code", "restarted"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 0, False), ("Never", 1, False)],
)
def test_the_policy_of_the_pod_decides(policy: str, exit_code: int, restarted: bool) -> None:
    assert is_restarted({"spec": {"restartPolicy": policy}}, {}, role=Role.MAIN, exit_code=exit_code) is restarted


@pytest.mark.parametrize(("policy", "exit_code", "restarted"), [("Always", 0, False), ("Always", 1, True), ("Never", 1, False)])
def test_an_init_container_that_has_succeeded_has_done_its_part(policy: str, exit_code: int, restarted: bool) -> None:
    assert is_restarted({"spec": {"restartPolicy": policy}}, {}, role=Role.INIT, exit_code=exit_code) is restarted


def test_a_sidecar_is_always_restarted() -> None:
    sidecar: JsonObject = {"restartPolicy": "Always"}
    role = role_of(sidecar, is_init=True)
    assert role is Role.SIDECAR
    assert is_restarted({"spec": {"restartPolicy": "Never"}}, sidecar, role=role, exit_code=0)


def test_a_rule_restarts_what_the_policy_does_not() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [1, 2]}}
    container = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    restarted = [code for code in range(5) if is_restarted({"spec": {}}, container, role=Role.MAIN, exit_code=code)]
    assert restarted == [0, 3, 4]


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (160, "2m40s"), (300, "5m0s"), (0.2, "200ms"), (3661, "1h1m1s")])
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
