"""Which roles wait for others, for every state of a replica."""

from __future__ import annotations

import pytest

from dlop import Progress, ReplicaProgress, ReplicaState, RoleProgress, RoleSpec, StartAfter, StartCondition
from dlop.api.start_order import find_start_wait, is_ready
from dlop.kube.objects import Condition, ContainerStatus, Pod, PodStatus


def pod(*containers: bool, conditions: tuple[Condition, ...] = ()) -> Pod:
    statuses = tuple(ContainerStatus(name=str(index), ready=ready) for index, ready in enumerate(containers))
    return Pod(status=PodStatus(phase="Running", container_statuses=statuses, conditions=conditions))


def progress(*replicas: tuple[ReplicaState, Pod | None]) -> Progress:
    observed = tuple(ReplicaProgress(role="PS", index=index, state=state, pod=pod) for index, (state, pod) in enumerate(replicas))
    return Progress(roles=(RoleProgress(spec=RoleSpec(name="PS", replicas=len(observed)), replicas=observed),))


def worker(*upstream: StartAfter) -> RoleSpec:
    return RoleSpec(name="Worker", replicas=1, start_after=upstream)


@pytest.mark.parametrize("condition", StartCondition)
@pytest.mark.parametrize("state", ReplicaState)
@pytest.mark.parametrize("ready", [False, True])
def test_a_replica_satisfies_a_condition_in_these_states(condition: StartCondition, state: ReplicaState, ready: bool) -> None:
    satisfied = {
        StartCondition.RUNNING: state in (ReplicaState.RUNNING, ReplicaState.SUCCEEDED),
        StartCondition.READY: (state is ReplicaState.RUNNING and ready) or state is ReplicaState.SUCCEEDED,
        StartCondition.SUCCEEDED: state is ReplicaState.SUCCEEDED,
    }
    wait = find_start_wait(worker(StartAfter("PS", condition)), progress((state, pod(ready)), (ReplicaState.SUCCEEDED, None)))
    assert (wait is None) is satisfied[condition]
    if wait is not None:
        assert str(wait) == f"Worker waits for PS: 1 of 2 {condition.lower()}"


def test_a_role_without_start_after_or_whose_upstream_is_absent_may_start() -> None:
    running = progress((ReplicaState.PENDING, None))
    assert find_start_wait(worker(), running) is None
    assert find_start_wait(worker(StartAfter("Chief")), running) is None
    assert find_start_wait(worker(StartAfter("PS")), progress()) is None


def test_of_several_upstream_roles_the_first_that_is_not_running_is_reported() -> None:
    wait = find_start_wait(worker(StartAfter("Chief"), StartAfter("PS")), progress((ReplicaState.MISSING, None)))
    assert wait is not None
    assert wait.upstream == "PS"


def test_a_pod_is_ready_if_all_containers_and_readiness_gates_are() -> None:
    gates = Condition(type="Ready", status="False", reason="ReadinessGatesNotReady")
    lost_node = Condition(type="Ready", status="False", reason="NodeStatusUnknown")
    assert is_ready(pod(True, True))
    assert is_ready(pod(True, conditions=(Condition(type="Ready", status="True"),)))
    assert not is_ready(pod(True, False))
    assert not is_ready(pod())
    assert not is_ready(pod(True, conditions=(gates,)))
    assert not is_ready(pod(True, conditions=(lost_node,)))
