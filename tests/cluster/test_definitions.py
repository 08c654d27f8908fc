"""Generated definitions on the embedded and on the real API server: installed, served, and as strict as they say."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop import DLJob
from dlop.api.crd import SIZE_LIMIT_BYTES, definitions
from dlop.deploy.apply import apply
from dlop.deploy.kustomize import to_yaml
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.errors import InvalidError
from dlop.kube.http.transport import connect
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import KINDS, Anything, ListAsSpec, ListInside, Newer, Plain, WithRules

TEMPLATE: JsonObject = {
    "metadata": {"labels": {"team": "vision"}, "creationTimestamp": None},
    "spec": {
        "containers": [{"name": "main", "image": "trainer:1", "resources": {"limits": {"nvidia.com/gpu": 1}}, "brandNewField": [1]}],
        "tolerations": [{"operator": "Exists"}],
    },
}
ONE: JsonObject = {"replicas": 1, "template": TEMPLATE}
TWO: JsonObject = {"replicas": 2, "restartPolicy": "ExitCode", "template": TEMPLATE}
POLICY: JsonObject = {"backoffLimit": 3, "cleanPodPolicy": "None", "restartScope": "Job", "suspend": True, "ttlSecondsAfterFinished": 0}

names = itertools.count()


@dataclass(frozen=True)
class Case:
    kind: type[DLJob]
    spec: Any


GOOD = {
    "one role": Case(Plain, {"replicaSpecs": {"Worker": TWO}}),
    "a run policy": Case(Plain, {"runPolicy": POLICY, "replicaSpecs": {"Worker": TWO}}),
    "no replicas said": Case(Plain, {"replicaSpecs": {"Worker": {"template": TEMPLATE}}}),
    "a role in small letters": Case(Plain, {"replicaSpecs": {"worker": ONE}}),
    "all roles within their limits": Case(WithRules, {"replicaSpecs": {"Chief": ONE, "Worker": TWO, "Evaluator": ONE}}),
    "only the required role": Case(WithRules, {"replicaSpecs": {"Chief": {"template": TEMPLATE}}}),
    "a list inside": Case(ListInside, {"entries": [{"template": TEMPLATE}, {"role": "FOLLOWER", "replicas": 4, "template": TEMPLATE}]}),
    "a list as spec": Case(ListAsSpec, [{"role": "FOLLOWER", "template": TEMPLATE, "oldField": 1}]),
    "anything": Case(Anything, [1, {"two": 3}]),
    "a second version": Case(Newer, {"replicaSpecs": {"Worker": ONE}}),
}
BAD = {
    "no spec.replicaSpecs": (Case(Plain, {}), "spec.replicaSpecs"),
    "no roles": (Case(Plain, {"replicaSpecs": {}}), "spec.replicaSpecs"),
    "an unknown role": (Case(Plain, {"replicaSpecs": {"Worker": ONE, "Boss": ONE}}), "spec.replicaSpecs"),
    "a negative number": (Case(Plain, {"replicaSpecs": {"Worker": {**ONE, "replicas": -1}}}), "spec.replicaSpecs.Worker.replicas"),
    "a text for a number": (Case(Plain, {"replicaSpecs": {"Worker": {**ONE, "replicas": "2"}}}), "spec.replicaSpecs.Worker.replicas"),
    "no template": (Case(Plain, {"replicaSpecs": {"Worker": {}}}), "spec.replicaSpecs.Worker.template"),
    "no containers": (
        Case(Plain, {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": []}}}}}),
        "spec.replicaSpecs.Worker.template.spec.containers",
    ),
    "an unknown restart policy": (
        Case(Plain, {"replicaSpecs": {"Worker": {**ONE, "restartPolicy": "Sometimes"}}}),
        "spec.replicaSpecs.Worker.restartPolicy",
    ),
    "an unknown clean pod policy": (
        Case(Plain, {"runPolicy": {"cleanPodPolicy": "Some"}, "replicaSpecs": {"Worker": ONE}}),
        "spec.runPolicy.cleanPodPolicy",
    ),
    "a negative limit": (Case(Plain, {"runPolicy": {"backoffLimit": -1}, "replicaSpecs": {"Worker": ONE}}), "spec.runPolicy.backoffLimit"),
    "a required role missing": (Case(WithRules, {"replicaSpecs": {"Worker": TWO}}), "spec.replicaSpecs"),
    "too many replicas": (Case(WithRules, {"replicaSpecs": {"Chief": TWO}}), "spec.replicaSpecs"),
    "too few replicas": (Case(WithRules, {"replicaSpecs": {"Chief": ONE, "Worker": ONE}}), "spec.replicaSpecs"),
    "two leaders": (Case(ListInside, {"entries": [{"template": TEMPLATE}, {"role": "LEADER", "template": TEMPLATE}]}), "spec.entries"),
    "an unknown entry": (Case(ListInside, {"entries": [{"role": "BOSS", "template": TEMPLATE}]}), "spec.entries[0].role"),
    "an object for a list": (Case(ListAsSpec, {}), "spec"),
    "a bad entry of a bare list": (Case(ListAsSpec, [{"template": TEMPLATE}, {"template": 1}]), "spec[1].template"),
}


@asynccontextmanager
async def embedded() -> AsyncIterator[Client]:
    async with EmbeddedCluster() as cluster:
        yield cluster.client()


@asynccontextmanager
async def real(cluster: RealCluster) -> AsyncIterator[Client]:
    client = Client(await connect(cluster.kubeconfig_path))
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(params=["embedded", "real"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A server that has all the definitions. Applying them once more to the shared one changes nothing."""
    opened = embedded() if request.param == "embedded" else real(request.getfixturevalue("real_cluster"))
    async with opened as found:
        await apply(found, definitions(KINDS), say=lambda _: None)
        yield found


def job(case: Case) -> JsonObject:
    names_of_kind = case.kind.job_type
    return {
        "apiVersion": names_of_kind.api_version,
        "kind": names_of_kind.kind,
        "metadata": {"name": f"job-{next(names)}"},
        "spec": case.spec,
    }


async def create(client: Client, case: Case) -> JsonObject:
    return await client.create(case.kind.job_type.resource, job(case), namespace="default", field_validation="Strict")


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD.keys())
async def test_a_good_job_is_taken_and_kept_whole(client: Client, case: Case) -> None:
    created = await create(client, case)
    assert created["spec"] == case.spec


@pytest.mark.parametrize(("case", "field"), BAD.values(), ids=BAD.keys())
async def test_a_bad_job_is_refused_and_the_field_is_named(client: Client, case: Case, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        await create(client, case)
    assert field in {cause["field"] for cause in refused.value.causes}


async def test_a_misspelt_field_is_not_overlooked(client: Client) -> None:
    case = Case(Plain, {"runPolicy": {"backofLimit": 1}, "replicaSpecs": {"Worker": ONE}})
    with pytest.raises(Exception, match=r'unknown field "spec\.runPolicy\.backofLimit"'):
        await create(client, case)


async def test_the_rules_say_what_to_write(client: Client) -> None:
    with pytest.raises(InvalidError, match="write one of the roles Worker"):
        await create(client, Case(Plain, {"replicaSpecs": {"Boss": ONE}}))
    with pytest.raises(InvalidError, match="replicas of Chief must be exactly 1"):
        await create(client, Case(WithRules, {"replicaSpecs": {"Chief": TWO}}))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_definition_is_established_and_nothing_of_it_is_doubted(client: Client, kind: type[DLJob]) -> None:
    found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, kind.job_type.resource.qualified_name)
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_a_status_is_written_apart_and_kept_as_it_is(client: Client) -> None:
    resource = Plain.job_type.resource
    created = await create(client, GOOD["one role"])
    name = created["metadata"]["name"]
    status = {"conditions": [{"type": "Running", "status": "True"}], "dlop": {"attempt": 2, "completed": {"Worker": "0-3"}}}
    await client.patch(resource, name, {"status": status}, namespace="default", subresource="status")
    found = await client.get(resource, name, namespace="default")
    assert found["status"] == status
    assert found["metadata"]["generation"] == created["metadata"]["generation"]


async def test_a_kind_with_one_role_can_be_scaled(client: Client) -> None:
    resource = Plain.job_type.resource
    created = await create(client, GOOD["one role"])
    name = created["metadata"]["name"]
    await client.patch(resource, name, {"spec": {"replicas": 5}}, namespace="default", subresource="scale")
    found = await client.get(resource, name, namespace="default")
    assert found["spec"]["replicaSpecs"]["Worker"]["replicas"] == 5


async def test_a_table_shows_state_and_age(client: Client) -> None:
    resource = Plain.job_type.resource
    created = await create(client, GOOD["one role"])
    name = created["metadata"]["name"]
    status = {"conditions": [{"type": "Created"}, {"type": "Running"}]}
    await client.patch(resource, name, {"status": status}, namespace="default", subresource="status")
    path = resource.path(namespace="default", name=name)
    answer = await client.call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert b'"State"' in answer.body
    assert b'"Running"' in answer.body


async def test_applying_again_changes_nothing(client: Client) -> None:
    said: list[str] = []
    await apply(client, definitions(KINDS), say=said.append)
    assert all(line.endswith(" unchanged") for line in said), said


@pytest.mark.parametrize("definition", definitions(KINDS), ids=lambda found: found["metadata"]["name"])
def test_a_definition_is_small(definition: JsonObject) -> None:
    assert len(to_yaml(definition)) < SIZE_LIMIT_BYTES
