"""Decisions of the autoscaler: examples, the test vectors of the TrainingJob operator, and properties of all decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.api.record import ScaleReason
from dlop.reconcile.autoscaler import Amounts, Cluster, ElasticJob, NodeCapacity, NodeSelector, ScaleDecision, WaitingPod, decide
from tests.thorough import examples

GROW, OVERLOAD, WAITING = ScaleReason.IDLE_CAPACITY, ScaleReason.OVERLOAD, ScaleReason.WAITING_PODS


def amounts(cpu: float = 0, *, memory: int = 0, gpu: int = 0, pods: int = 1) -> Amounts:
    """CPU in cores."""
    return Amounts(cpu=round(cpu * 1000), memory=memory, gpu=gpu, pods=pods)


def node(
    name: str = "a", cpu: float = 10, *, memory: int = 1000, gpu: int = 0, pods: int = 110, used: Amounts | None = None, **labels: str
) -> NodeCapacity:
    allocatable = amounts(cpu, memory=memory, gpu=gpu, pods=pods)
    return NodeCapacity(name=name, allocatable=allocatable, used=used or Amounts(), labels=labels)


def job(
    name: str = "job",
    replicas: int = 1,
    *,
    limits: tuple[int, int] = (1, 3),
    each: Amounts | None = None,
    nodes: Sequence[str] | None = None,
    selector: NodeSelector = (),
    may_grow: bool = True,
) -> ElasticJob:
    """A job whose replicas request one core. `nodes` are those of the replicas above the minimum, by default all on node "a"."""
    return ElasticJob(
        uid=f"uid-{name}",
        name=name,
        minimum=limits[0],
        maximum=limits[1],
        replicas=replicas,
        amounts=each or amounts(1),
        nodes=["a"] * (replicas - limits[0]) if nodes is None else nodes,
        selector=selector,
        may_grow=may_grow,
    )


def used_by(*jobs: ElasticJob) -> Amounts:
    total = Amounts()
    for each in jobs:
        total = total.plus(each.amounts, each.replicas)
    return total


def one_node(*jobs: ElasticJob, cpu: float, gpu: int = 0, pods: int = 110) -> Cluster:
    """A node on which all replicas of these jobs run."""
    used = used_by(*jobs)
    return Cluster(nodes=[node(cpu=cpu, gpu=gpu, pods=pods, used=used)], demand=used)


def waiting_for(nodes: Sequence[NodeCapacity], *pods: WaitingPod) -> Cluster:
    """A cluster with pods that wait. The demand is the sum of what is used, without pods that are being deleted, and what they request."""
    total = Amounts()
    for each in (*(each.used.plus(each.leaving, -1) for each in nodes), *(pod.amounts for pod in pods)):
        total = total.plus(each)
    return Cluster(nodes=nodes, demand=total, waiting=pods)


def fulfilment(each: ElasticJob) -> float:
    return (each.replicas - each.minimum) / (each.maximum - each.minimum)


def replicas(decisions: Mapping[str, ScaleDecision]) -> dict[str, int]:
    return {uid.removeprefix("uid-"): decision.replicas for uid, decision in decisions.items()}


def decided(cluster: Cluster, *jobs: ElasticJob, max_load: float = 1.0) -> dict[str, int]:
    """The new number of replicas by job."""
    return replicas(decide(cluster, jobs, max_load=max_load))


# --- the test vectors of the TrainingJob operator ---------------------------------------------------------------------------

MEBIBYTES = 105  # 100Mi in units of 1,000,000 bytes
SMALL = amounts(1, memory=MEBIBYTES)


def totals(cpu: tuple[int, int], memory: tuple[int, int], gpu: tuple[int, int] = (0, 0)) -> Cluster:
    """One node, from what is used and what is allocatable of each resource."""
    (used_cpu, all_cpu), (used_memory, all_memory), (used_gpu, all_gpu) = cpu, memory, gpu
    used = Amounts(used_cpu, used_memory, used_gpu, pods=1)
    allocatable = Amounts(all_cpu, all_memory, all_gpu, pods=1000)
    return Cluster(nodes=[NodeCapacity(name="a", allocatable=allocatable, used=used, labels={})], demand=used)


@pytest.mark.parametrize(
    ("cluster", "max_load", "current", "expected"),
    [
        (totals((1000, 4000), (100, 1000)), 1.0, job(each=SMALL), 3),
        (totals((1000, 3000), (100, 1000)), 0.8, job(each=SMALL), 2),
        (totals((3000, 3000), (300, 1000)), 0.8, job(replicas=3, each=SMALL), 2),
        (totals((990, 2000), (100, 1000), (9, 10)), 1.0, job(each=amounts(1, memory=1, gpu=1)), 2),
        (totals((1000, 4000), (1000, 1000)), 1.0, job(each=SMALL), 1),
        (totals((6000, 8000), (630, 1000)), 1.0, job(replicas=6, each=SMALL), 3),
        (totals((9000, 1000), (315, 1000)), 1.0, job(replicas=3, each=SMALL), 1),
    ],
    ids=[
        "grows to the maximum",
        "grows up to the load limit",
        "shrinks to the load limit",
        "grows up to the last GPU",
        "does not grow without memory",
        "shrinks to a lower maximum",
        "shrinks to the minimum while the load is too high",
    ],
)
def test_a_job_gets_the_replicas_of_the_test_vector(cluster: Cluster, max_load: float, current: ElasticJob, expected: int) -> None:
    assert decided(cluster, current, max_load=max_load).get("job", current.replicas) == expected


def test_the_job_with_the_lowest_fulfilment_grows_first() -> None:
    """The fulfilments are 1, 1/19 and 1/9. The last job is not elastic."""
    jobs = [
        job("a", 2, limits=(1, 2)),
        job("b", 2, limits=(1, 20)),
        job("c", 2, limits=(1, 10)),
        job("d", 1, limits=(1, 1)),
    ]
    assert decided(one_node(*jobs, cpu=8), *jobs) == {"b": 3}
    assert decided(one_node(*jobs, cpu=9), *jobs) == {"b": 4}
    assert decided(one_node(*jobs, cpu=10), *jobs) == {"b": 4, "c": 3}


def test_the_job_with_the_highest_fulfilment_shrinks_first() -> None:
    jobs = [job("a", 2, limits=(1, 2)), job("b", 2, limits=(1, 20)), job("c", 2, limits=(1, 10)), job("d", 1, limits=(1, 1))]
    assert decided(one_node(*jobs, cpu=6), *jobs) == {"a": 1}
    assert decided(one_node(*jobs, cpu=5), *jobs) == {"a": 1, "c": 1}
    assert decided(one_node(*jobs, cpu=1), *jobs) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("limits", [(2, 2), (3, 2)])
def test_a_job_that_is_not_elastic_is_ignored(limits: tuple[int, int]) -> None:
    current = job(replicas=2, limits=limits)
    assert decided(one_node(current, cpu=10), current) == {}
    assert decided(one_node(current, cpu=1), current) == {}


# --- order ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (job("z", each=amounts(9, memory=9)), job("y", each=amounts(1, memory=1, gpu=1))),
        (job("z", each=amounts(1, memory=9)), job("y", each=amounts(2, memory=1))),
        (job("z", each=amounts(1, memory=1)), job("y", each=amounts(1, memory=2))),
        (job("y"), job("z")),
    ],
    ids=["fewer GPUs", "less CPU", "less memory", "name"],
)
def test_ties_are_broken_by_gpus_cpu_memory_and_name(first: ElasticJob, second: ElasticJob) -> None:
    for jobs in ([first, second], [second, first]):
        room = used_by(*jobs).plus(first.amounts)
        cluster = Cluster(nodes=[node(cpu=1000, gpu=10, used=used_by(*jobs))], demand=used_by(*jobs))
        limited = [replace(cluster.nodes[0], allocatable=Amounts(room.cpu, room.memory, room.gpu, room.pods))]
        assert decided(replace(cluster, nodes=limited), *jobs) == {first.name: 2}

        grown = [replace(each, replicas=3) for each in jobs]
        overloaded = used_by(*grown).plus(Amounts(pods=1), -1)
        cluster = Cluster(nodes=[NodeCapacity(name="a", allocatable=overloaded, used=used_by(*grown), labels={})], demand=used_by(*grown))
        assert decided(cluster, *grown) == {second.name: 2}


def test_jobs_of_two_kinds_with_the_same_name_are_decided_in_a_fixed_order() -> None:
    jobs = [replace(job(), uid=uid) for uid in ("uid-1", "uid-2")]
    cluster = one_node(*jobs, cpu=3)
    assert decided(cluster, *jobs) == decided(cluster, *reversed(jobs)) == {"1": 2}


def test_the_input_order_of_nodes_does_not_matter() -> None:
    nodes = [node("a", 2), node("b", 3)]
    large, small = job("large", each=amounts(2)), job("small", limits=(1, 2))
    results = [decided(Cluster(nodes=order, demand=Amounts()), large, small) for order in (nodes, nodes[::-1])]
    assert results == [{"large": 2, "small": 2}] * 2


# --- growth -----------------------------------------------------------------------------------------------------------------


def test_a_job_grows_only_while_a_replica_fits_on_a_single_node() -> None:
    nodes = [node(name, 3, used=amounts(1)) for name in ("a", "b", "c")]
    current = job(limits=(1, 9), each=amounts(2))
    assert decided(Cluster(nodes=nodes, demand=amounts(3)), current) == {"job": 4}
    current = job(limits=(1, 9), each=amounts(2.5))
    assert decided(Cluster(nodes=nodes, demand=amounts(3)), current) == {}


def test_a_job_grows_only_on_nodes_that_its_selector_matches() -> None:
    nodes = [node("a", 10, zone="west"), node("b", 2, zone="east"), node("c", 2, zone="east", disk="ssd")]
    cluster = Cluster(nodes=nodes, demand=amounts(0))
    assert decided(cluster, job(limits=(1, 9), selector=(("zone", "east"),))) == {"job": 5}
    assert decided(cluster, job(limits=(1, 9), selector=(("disk", "ssd"), ("zone", "east")))) == {"job": 3}
    assert decided(cluster, job(limits=(1, 9), selector=(("zone", "north"),))) == {}


def test_a_node_that_is_full_of_pods_gets_no_replica() -> None:
    current = job(limits=(1, 9))
    assert decided(one_node(current, cpu=100, pods=4), current) == {"job": 4}


def test_a_job_that_requests_nothing_grows_to_what_the_nodes_can_run() -> None:
    current = job(limits=(1, 1000), each=amounts(pods=1))
    nodes = [node("a", 1, pods=110, used=amounts(pods=1)), node("b", 1, pods=20)]
    cluster = Cluster(nodes=nodes, demand=amounts(pods=1))
    assert decided(cluster, current) == {"job": 130}
    assert decided(cluster, current, max_load=0.5) == {"job": 65}


def test_a_job_without_memory_requests_grows_while_memory_is_overloaded() -> None:
    nodes = [node(cpu=10, memory=100, used=amounts(1, memory=200))]
    assert decided(Cluster(nodes=nodes, demand=amounts(1, memory=200)), job()) == {"job": 3}


def test_a_job_whose_replicas_are_not_running_yet_does_not_grow_but_shrinks() -> None:
    current = job(replicas=2, may_grow=False)
    assert decided(one_node(current, cpu=10), current) == {}
    assert decided(one_node(current, cpu=1), current) == {"job": 1}


def test_a_job_below_its_minimum_grows_first() -> None:
    jobs = [job("below", 0, limits=(2, 4)), job("other", 1, limits=(1, 9))]
    assert decided(one_node(*jobs, cpu=3), *jobs) == {"below": 2}


def test_replicas_without_a_node_keep_room_for_themselves() -> None:
    """The scheduler will place them, so that other jobs must not grow into their room."""
    starting = job("starting", 3, limits=(1, 3), nodes=["b"], may_grow=False, each=amounts(2))
    other = job("other", limits=(1, 9), each=amounts(2))
    nodes = [node("a", 4, used=amounts(4, pods=2)), node("b", 4), node("c", 4)]
    cluster = Cluster(nodes=nodes, demand=used_by(starting, other))
    assert decided(cluster, starting, other) == {"other": 3}


# --- overload ---------------------------------------------------------------------------------------------------------------


def test_jobs_that_do_not_request_the_overloaded_resource_do_not_shrink() -> None:
    cpu = job("cpu", 3, limits=(1, 3), each=amounts(1))
    gpu = job("gpu", 3, limits=(1, 3), each=amounts(1, gpu=1))
    assert decided(one_node(cpu, gpu, cpu=100, gpu=2), cpu, gpu) == {"gpu": 2}


def test_a_job_that_shrank_for_nothing_keeps_its_replicas() -> None:
    """The job with the highest fulfilment shrinks first for CPU, and then another one must shrink for GPUs and CPU anyway."""
    cpu = job("cpu", 9, limits=(1, 9), each=amounts(1), may_grow=False)
    gpu = job("gpu", 5, limits=(1, 9), each=amounts(4, gpu=1), may_grow=False)
    assert decided(one_node(cpu, gpu, cpu=25, gpu=4), cpu, gpu) == {"gpu": 4}


def test_a_job_that_ends_with_fewer_replicas_does_not_claim_idle_capacity() -> None:
    cpu = job("cpu", 9, limits=(1, 9), each=amounts(3))
    gpu = job("gpu", 3, limits=(1, 9), each=amounts(8, gpu=1))
    decisions = decide(one_node(cpu, gpu, cpu=36, gpu=2), [cpu, gpu], max_load=1.0)
    assert all(decision.reason is not GROW for decision in decisions.values() if decision.replicas < decision.previous)


def test_a_lower_maximum_and_the_load_limit_apply_together() -> None:
    current = job(replicas=6, limits=(1, 4))
    assert decide(one_node(current, cpu=3), [current], max_load=1.0) == {"uid-job": ScaleDecision(6, 3, OVERLOAD)}


# --- waiting pods -----------------------------------------------------------------------------------------------------------


def waiting(cpu: float = 0, *, name: str = "waiting", selector: NodeSelector = (), **others: int) -> WaitingPod:
    return WaitingPod(name=name, amounts=amounts(cpu, **others), selector=selector)


def test_room_is_made_for_a_pod_that_fits_on_no_node_although_the_demand_is_below_the_limit() -> None:
    nodes = [node("a", 3, used=amounts(2, pods=2)), node("b", 3, used=amounts(2, pods=2))]
    jobs = [job("one", 2, nodes=["a"]), job("two", 2, limits=(1, 9), nodes=["b"], may_grow=False)]
    decisions = decide(waiting_for(nodes, waiting(2)), jobs, max_load=1.0)
    assert decisions == {"uid-one": ScaleDecision(2, 1, WAITING)}


def test_a_job_that_leaves_a_node_for_a_waiting_pod_does_not_return_in_the_same_decision() -> None:
    """It would fit on another node. But only its number of replicas counts, so that the pod would wait forever."""
    nodes = [node("a", 3, used=amounts(2, pods=2)), node("b", 3, used=amounts(2, pods=2))]
    current = job(replicas=2, nodes=["a"])
    assert decided(waiting_for(nodes, waiting(2)), current) == {"job": 1}


def test_a_waiting_pod_that_fits_on_a_node_is_left_to_the_scheduler() -> None:
    nodes = [node("a", 4, used=amounts(2, pods=2))]
    current = job(replicas=2, nodes=["a"])
    assert decided(waiting_for(nodes, waiting(2)), current) == {}


@pytest.mark.parametrize(
    "pod",
    [waiting(20), waiting(1, gpu=1), waiting(1, pods=500), waiting(1, selector=(("zone", "north"),)), waiting(9)],
    ids=["CPU", "GPUs", "pods", "node selector", "CPU of other pods"],
)
def test_nothing_shrinks_for_a_pod_that_can_never_fit(pod: WaitingPod) -> None:
    nodes = [node("a", 10, used=amounts(9, pods=9)), node("b", 10, used=amounts(9, pods=9))]
    current = job(replicas=5, limits=(1, 5), nodes=["a", "a", "b", "b"])
    assert decided(waiting_for(nodes, pod), current) == {}


def test_pods_that_fit_one_by_one_but_not_together_get_what_is_possible() -> None:
    nodes = [node("a", 4, used=amounts(4, pods=4))]
    current = job(replicas=3, limits=(1, 3), nodes=["a", "a"])
    cluster = waiting_for(nodes, waiting(1.5, name="one"), waiting(2, name="two"))
    assert decided(cluster, current) == {"job": 1}


def test_jobs_can_grow_while_a_pod_waits_that_can_never_fit() -> None:
    nodes = [node("a", 10, used=amounts(1))]
    assert decided(waiting_for(nodes, waiting(20)), job()) == {"job": 3}


def test_the_replicas_with_the_highest_index_leave_first() -> None:
    """What is released is the room of these replicas, on their nodes."""
    nodes = [node("a", 2, used=amounts(2)), node("b", 2, used=amounts(2), zone="east")]
    on_b_last = job(replicas=3, limits=(1, 3), nodes=["a", "b"])
    on_b_first = job(replicas=3, limits=(1, 3), nodes=["b", "a"])
    cluster = waiting_for(nodes, waiting(1, selector=(("zone", "east"),)))
    cluster = replace(cluster, demand=amounts(4))
    assert decided(cluster, on_b_last) == {"job": 2}
    assert decided(cluster, on_b_first) == {"job": 1}


def test_a_job_without_replicas_on_the_node_does_not_shrink_for_a_waiting_pod() -> None:
    nodes = [node("a", 3, used=amounts(3, pods=3), zone="east"), node("b", 9, used=amounts(8, pods=8))]
    elsewhere = job("elsewhere", 9, limits=(1, 9), nodes=["b"] * 8, may_grow=False)
    unplaced = job("unplaced", 3, limits=(1, 3), nodes=[], may_grow=False)
    there = job("there", 3, limits=(1, 9), nodes=["a", "a"], may_grow=False)
    cluster = replace(waiting_for(nodes, waiting(1, selector=(("zone", "east"),))), demand=amounts(5))
    assert decided(cluster, elsewhere, unplaced, there) == {"there": 2}


def test_a_waiting_pod_comes_before_growth() -> None:
    nodes = [node("a", 4, used=amounts(1))]
    assert decided(waiting_for(nodes, waiting(2)), job()) == {"job": 2}
    assert decided(waiting_for(nodes, waiting(3)), job()) == {}


def test_a_waiting_pod_comes_before_optional_replicas_without_a_node() -> None:
    nodes = [node("a", 4, used=amounts(1))]
    starting = job("starting", 2, limits=(1, 2), nodes=[""], each=amounts(2), may_grow=False)
    placed = job("placed", 2, limits=(1, 2), nodes=["a"], may_grow=False)
    cluster = replace(waiting_for(nodes, waiting(3)), demand=amounts(4))
    assert decided(cluster, starting, placed) == {}


def test_the_largest_waiting_pod_is_placed_first() -> None:
    nodes = [node("a", 2, used=amounts(1)), node("b", 3, used=amounts(1))]
    current = job(replicas=2, limits=(1, 2), nodes=["b"])
    for order in (1, -1):
        pods = [waiting(1, name="small"), waiting(2, name="large")][::order]
        assert decided(waiting_for(nodes, *pods), current) == {}


def test_a_replica_on_a_node_that_accepts_no_pods_releases_nothing() -> None:
    nodes = [node("a", 2, used=amounts(2, pods=2))]
    current = job(replicas=3, limits=(1, 3), nodes=["a", "cordoned"])
    assert decided(replace(waiting_for(nodes, waiting(1)), demand=amounts(2)), current) == {"job": 1}
    assert decided(replace(waiting_for(nodes, waiting(2)), demand=amounts(2)), current) == {}


# --- pods that are being deleted --------------------------------------------------------------------------------------------


def test_room_that_is_about_to_become_free_is_not_made_again() -> None:
    nodes = [replace(node("a", 4, used=amounts(4, pods=4)), leaving=amounts(2, pods=2)), node("b", 4, used=amounts(4, pods=4))]
    current = job(replicas=4, limits=(1, 4), nodes=["b", "b", "a"])
    assert decided(waiting_for(nodes, waiting(2)), current) == {}
    assert decided(waiting_for(nodes, waiting(3)), current) == {"job": 3}


def test_no_job_grows_while_a_waiting_pod_needs_the_room_of_pods_that_are_being_deleted() -> None:
    """The scheduler could place the new replica there before it places the waiting pod."""
    nodes = [node("a", 4, used=amounts(4, pods=4)), node("b", 1)]
    leaving = [replace(nodes[0], leaving=amounts(2, pods=2)), nodes[1]]
    gone = [replace(nodes[0], used=amounts(2, pods=2)), nodes[1]]
    assert decided(waiting_for(leaving, waiting(2)), job()) == {}
    assert decided(waiting_for(gone, waiting(2)), job()) == {"job": 2}
    assert decided(waiting_for(leaving), job()) == {"job": 3}


# --- properties of all decisions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """A cluster whose scheduler uses the first node with room, by name."""

    nodes: tuple[NodeCapacity, ...]
    """What is used is that of pods without a job."""
    jobs: tuple[ElasticJob, ...]
    minimums: Mapping[str, tuple[str, ...]]
    """By job, the nodes of the replicas up to the minimum; empty for a replica that is not on a node."""
    waiting: tuple[WaitingPod, ...]
    max_load: float

    def cluster(self) -> Cluster:
        used = {each.name: each.used for each in self.nodes}
        for each in self.jobs:
            for name in (*self.minimums[each.name], *each.nodes):
                if name:
                    used[name] = used[name].plus(each.amounts)
        demand = used_by(*self.jobs)
        others = (each.used.plus(each.leaving, -1) for each in self.nodes)
        for amount in (*others, *(pod.amounts for pod in self.waiting)):
            demand = demand.plus(amount)
        return Cluster(nodes=[replace(each, used=used[each.name]) for each in self.nodes], demand=demand, waiting=self.waiting)

    def decide(self) -> dict[str, ScaleDecision]:
        return decide(self.cluster(), self.jobs, max_load=self.max_load)

    def ceiling(self) -> Amounts:
        return Amounts(*(int(sum(column) * self.max_load) for column in zip(*(each.allocatable for each in self.nodes), strict=True)))

    def first_fit(self, request: Amounts, selector: NodeSelector) -> str:
        """The first node with room for a pod; empty if there is none."""
        for each in sorted(self.cluster().nodes, key=lambda each: each.name):
            if request.fits(each.allocatable.plus(each.used, -1)) and all(each.labels.get(key) == value for key, value in selector):
                return each.name
        return ""

    def with_job(self, changed: ElasticJob) -> State:
        return replace(self, jobs=tuple(changed if each.name == changed.name else each for each in self.jobs))

    def scaled(self, decisions: Mapping[str, ScaleDecision]) -> State:
        """The replicas with the highest index have left, and then the scheduler places what waits and then what is new."""
        state = self
        for each in self.jobs:
            left = decisions[each.uid].replicas if each.uid in decisions else each.replicas
            if left < each.replicas:
                state = state.with_job(replace(each, replicas=left, nodes=each.nodes[: left - each.minimum]))
        return state.place_waiting_pods().place_optional_replicas().grown(decisions)

    def leaving(self, decisions: Mapping[str, ScaleDecision]) -> State:
        """The replicas with the highest index are being deleted. They still use their nodes, and nothing else has changed."""
        state = self
        for each in self.jobs:
            left = decisions[each.uid].replicas if each.uid in decisions else each.replicas
            if left < each.replicas:
                state = state.with_job(replace(each, replicas=left, nodes=each.nodes[: left - each.minimum]))
                for name in each.nodes[left - each.minimum :]:
                    state = state.with_leaving_pod(name, each.amounts)
        return state

    def with_leaving_pod(self, name: str, request: Amounts) -> State:
        nodes = (
            replace(each, used=each.used.plus(request), leaving=each.leaving.plus(request)) if each.name == name else each
            for each in self.nodes
        )
        return replace(self, nodes=tuple(nodes))

    def place_waiting_pods(self) -> State:
        state = self
        for pod in sorted(self.waiting, key=lambda pod: (pod.amounts, pod.name), reverse=True):
            if name := state.first_fit(pod.amounts, pod.selector):
                nodes = tuple(replace(each, used=each.used.plus(pod.amounts)) if each.name == name else each for each in state.nodes)
                state = replace(state, nodes=nodes, waiting=tuple(each for each in state.waiting if each != pod))
        return state

    def place_optional_replicas(self) -> State:
        state = self
        for each in sorted(self.jobs, key=order):
            for index, name in enumerate(each.nodes):
                if not name:
                    current = next(job for job in state.jobs if job.name == each.name)
                    nodes = list(current.nodes)
                    nodes[index] = state.first_fit(each.amounts, each.selector)
                    state = state.with_job(replace(current, nodes=nodes))
        return state

    def grown(self, decisions: Mapping[str, ScaleDecision]) -> State:
        """The operator creates the pods of the job with the lowest fulfilment first."""
        state = self
        while True:
            behind = [each for each in state.jobs if each.uid in decisions and each.replicas < decisions[each.uid].replicas]
            if not behind:
                return state
            first = min(behind, key=lambda each: (fulfilment(each), *order(each)))
            name = state.first_fit(first.amounts, first.selector)
            state = state.with_job(replace(first, replicas=first.replicas + 1, nodes=[*first.nodes, name]))


def order(each: ElasticJob) -> tuple[int, int, int, str]:
    return each.amounts.gpu, each.amounts.cpu, each.amounts.memory, each.name


REQUESTS = st.builds(amounts, st.sampled_from([0, 0.5, 1, 2, 3]), memory=st.integers(0, 3), gpu=st.sampled_from([0, 0, 0, 1]))
SELECTORS = st.sampled_from([(), (), (), (("zone", "east"),)])


@st.composite
def states(draw: st.DrawFn, *, waiting_pods: int = 3) -> State:
    nodes = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        room = draw(
            st.builds(amounts, st.integers(0, 8), memory=st.integers(0, 12), gpu=st.integers(0, 2), pods=st.sampled_from([3, 5, 100]))
        )
        others = Amounts(*(draw(st.integers(0, amount // 2)) for amount in (room.cpu // 500, room.memory, room.gpu, 2)))
        labels = {"zone": draw(st.sampled_from(["east", "west"]))}
        nodes.append(NodeCapacity(name=name, allocatable=room, used=others._replace(cpu=others.cpu * 500), labels=labels))
    state = State(tuple(nodes), (), {}, (), draw(st.sampled_from([0.5, 0.9, 1.0])))
    for name in "pqrs"[: draw(st.integers(0, 4))]:
        state = with_drawn_job(draw, state, name)
    for number in range(draw(st.integers(0, waiting_pods))):
        pod = WaitingPod(name=f"waiting-{number}", amounts=draw(REQUESTS), selector=draw(SELECTORS))
        state = replace(state, waiting=(*state.waiting, pod))
    return state


def with_drawn_job(draw: st.DrawFn, state: State, name: str) -> State:
    minimum = draw(st.integers(0, 2))
    limits = (minimum, minimum + draw(st.integers(0, 4)))
    # More than the maximum if it was lowered.
    replicas = draw(st.integers(minimum, limits[1] + draw(st.sampled_from([0, 0, 0, 2]))))
    may_grow = draw(st.sampled_from([True, True, False]))
    current = job(name, 0, limits=limits, each=draw(REQUESTS), selector=draw(SELECTORS), nodes=[], may_grow=may_grow)
    state = replace(state, jobs=(*state.jobs, current), minimums={**state.minimums, name: ()})
    for index in range(replicas):
        is_bound = draw(st.integers(0, 9)) > 0
        node_name = state.first_fit(current.amounts, current.selector) if is_bound else ""
        if index < minimum:
            state = replace(state, minimums={**state.minimums, name: (*state.minimums[name], node_name)})
        else:
            current = replace(current, nodes=[*current.nodes, node_name])
        current = replace(current, replicas=index + 1)
        state = state.with_job(current)
    return state


def demand_of_placeable_pods(state: State) -> Amounts:
    demand = state.cluster().demand
    for pod in state.waiting:
        demand = demand.plus(pod.amounts, -1)
    return demand


def with_replica_back(state: State, shrunk: ElasticJob) -> State:
    """The state with the last replica that has left, on its node."""
    current = next(each for each in state.jobs if each.name == shrunk.name)
    name = shrunk.nodes[current.replicas - current.minimum]
    return state.with_job(replace(current, replicas=current.replicas + 1, nodes=[*current.nodes, name]))


def is_over(each: NodeCapacity) -> bool:
    return not each.used.fits(each.allocatable)


@settings(max_examples=examples(400))
@given(state=states())
def test_a_decision_is_a_change_within_the_limits(state: State) -> None:
    jobs = {each.uid: each for each in state.jobs}
    for uid, decision in state.decide().items():
        assert decision.previous == jobs[uid].replicas != decision.replicas
        assert jobs[uid].minimum <= decision.replicas <= jobs[uid].maximum
        assert (decision.reason is GROW) == (decision.replicas > decision.previous)
        assert jobs[uid].may_grow or decision.replicas < decision.previous


@settings(max_examples=examples(400))
@given(state=states())
def test_the_demand_is_not_above_the_ceiling_for_what_a_grown_job_requests(state: State) -> None:
    decisions = state.decide()
    after = state.scaled(decisions)
    demand = demand_of_placeable_pods(after)
    for each in state.jobs:
        if each.uid in decisions and decisions[each.uid].reason is GROW:
            for request, amount, limit in zip(each.amounts, demand, state.ceiling(), strict=True):
                assert amount <= limit or not request


@settings(max_examples=examples(400))
@given(state=states(waiting_pods=0))
def test_a_decision_that_is_carried_out_causes_no_other(state: State) -> None:
    assert state.scaled(state.decide()).decide() == {}


@settings(max_examples=examples(400))
@given(state=states())
def test_decisions_settle_after_at_most_one_for_each_waiting_pod(state: State) -> None:
    """One is not always enough, because the scheduler may use the room of one waiting pod for another."""
    for _ in range(len(state.waiting) + 1):
        state = state.scaled(state.decide())
    assert state.decide() == {}


@settings(max_examples=examples(400))
@given(state=states(waiting_pods=1))
def test_after_a_waiting_pod_was_placed_jobs_only_grow_and_then_the_state_is_final(state: State) -> None:
    after = state.scaled(state.decide())
    second = after.decide()
    assert all(decision.reason is GROW for decision in second.values())
    assert state.waiting or not second
    assert after.scaled(second).decide() == {}


@settings(max_examples=examples(400))
@given(state=states(waiting_pods=1))
def test_nothing_is_decided_while_the_replicas_that_must_leave_are_being_deleted(state: State) -> None:
    first = state.decide()
    if not any(decision.reason is GROW for decision in first.values()):
        assert state.leaving(first).decide() == {}


@settings(max_examples=examples(400))
@given(state=states())
def test_no_replica_leaves_that_could_stay(state: State) -> None:
    shrunk = {uid: decision for uid, decision in state.decide().items() if decision.replicas < decision.previous}
    after = state.scaled(shrunk)
    for each in state.jobs:
        if each.uid in shrunk and shrunk[each.uid].replicas < each.maximum:
            back = with_replica_back(after, each)
            is_overloaded = any(
                amount > limit and request
                for amount, limit, request in zip(demand_of_placeable_pods(back), state.ceiling(), each.amounts, strict=True)
            )
            assert is_overloaded or any(map(is_over, back.cluster().nodes))


@settings(max_examples=examples(200))
@given(state=states(), data=st.data())
def test_the_order_of_the_input_does_not_matter(state: State, data: st.DataObject) -> None:
    def shuffled(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(data.draw(st.permutations(items)))

    other = replace(state, nodes=shuffled(state.nodes), jobs=shuffled(state.jobs), waiting=shuffled(state.waiting))
    assert state.decide() == other.decide()


@settings(max_examples=examples(400))
@given(state=states())
def test_the_number_of_steps_is_proportional_to_the_size_of_the_cluster_and_the_changes(state: State) -> None:
    steps = 0
    plus = Amounts.plus

    def count(self: Amounts, other: Amounts, count: int = 1) -> Amounts:
        nonlocal steps
        steps += 1
        return plus(self, other, count)

    cluster = state.cluster()
    with patch.object(Amounts, "plus", count):
        decisions = decide(cluster, state.jobs, max_load=state.max_load)
    grown = sum(decision.replicas - decision.previous for decision in decisions.values() if decision.reason is GROW)
    optional = sum(each.replicas - each.minimum for each in state.jobs)
    assert steps <= 3 * len(state.nodes) + len(state.jobs) + 8 * optional + 4 * (len(state.waiting) + grown)
