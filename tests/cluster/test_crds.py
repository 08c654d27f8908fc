"""Generated CRDs on the embedded and on the real API server: installation, validation, status and scale subresources."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop import DLJob, JobType
from dlop.api.crd import SIZE_LIMIT_BYTES, build_crds
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

numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    kind: type[DLJob]
    spec: Any


VALID = {
    "one role": Case(Plain, {"replicaSpecs": {"Worker": TWO}}),
    "a run policy": Case(Plain, {"runPolicy": POLICY, "replicaSpecs": {"Worker": TWO}}),
    "no replicas set": Case(Plain, {"replicaSpecs": {"Worker": {"template": TEMPLATE}}}),
    "a role in lower case": Case(Plain, {"replicaSpecs": {"worker": ONE}}),
    "all roles within their limits": Case(WithRules, {"replicaSpecs": {"Chief": ONE, "Worker": TWO, "Evaluator": ONE}}),
    "only the required role": Case(WithRules, {"replicaSpecs": {"Chief": {"template": TEMPLATE}}}),
    "a list inside": Case(ListInside, {"entries": [{"template": TEMPLATE}, {"role": "FOLLOWER", "replicas": 4, "template": TEMPLATE}]}),
    "a list as spec": Case(ListAsSpec, [{"role": "FOLLOWER", "template": TEMPLATE, "oldField": 1}]),
    "anything": Case(Anything, [1, {"two": 3}]),
    "a second version": Case(Newer, {"replicaSpecs": {"Worker": ONE}}),
}
INVALID = {
    "no spec.replicaSpecs": (Case(Plain, {}), "spec.replicaSpecs"),
    "no roles": (Case(Plain, {"replicaSpecs": {}}), "spec.replicaSpecs"),
    "an unknown role": (Case(Plain, {"replicaSpecs": {"Worker": ONE, "Boss": ONE}}), "spec.replicaSpecs"),
    "a negative number": (Case(Plain, {"replicaSpecs": {"Worker": {**ONE, "replicas": -1}}}), "spec.replicaSpecs.Worker.replicas"),
    "a string for a number": (Case(Plain, {"replicaSpecs": {"Worker": {**ONE, "replicas": "2"}}}), "spec.replicaSpecs.Worker.replicas"),
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
    "an object instead of a list": (Case(ListAsSpec, {}), "spec"),
    "an invalid entry of a list as spec": (Case(ListAsSpec, [{"template": TEMPLATE}, {"template": 1}]), "spec[1].template"),
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
    """A server with all CRDs. Applying them again to the shared server changes nothing."""
    client_context = embedded() if request.param == "embedded" else real(request.getfixturevalue("real_cluster"))
    async with client_context as client:
        await apply(client, build_crds(KINDS), report=lambda _: None)
        yield client


def job(case: Case) -> JsonObject:
    job_type = case.kind.job_type
    return {
        "apiVersion": job_type.api_version,
        "kind": job_type.kind,
        "metadata": {"name": f"job-{next(numbers)}"},
        "spec": case.spec,
    }


async def create(client: Client, case: Case) -> JsonObject:
    return await client.create(case.kind.job_type.resource, job(case), namespace="default", field_validation="Strict")


@pytest.mark.parametrize("case", VALID.values(), ids=VALID.keys())
async def test_a_valid_job_is_accepted_and_stored_unchanged(client: Client, case: Case) -> None:
    created = await create(client, case)
    assert created["spec"] == case.spec


@pytest.mark.parametrize(("case", "field"), INVALID.values(), ids=INVALID.keys())
async def test_an_invalid_job_is_rejected_and_the_field_is_named(client: Client, case: Case, field: str) -> None:
    with pytest.raises(InvalidError) as rejected:
        await create(client, case)
    assert field in {cause["field"] for cause in rejected.value.causes}


async def test_an_unknown_field_is_rejected(client: Client) -> None:
    case = Case(Plain, {"runPolicy": {"backofLimit": 1}, "replicaSpecs": {"Worker": ONE}})
    with pytest.raises(Exception, match=r'unknown field "spec\.runPolicy\.backofLimit"'):
        await create(client, case)


async def test_the_validation_messages_name_the_valid_values(client: Client) -> None:
    with pytest.raises(InvalidError, match="write one of the roles Worker"):
        await create(client, Case(Plain, {"replicaSpecs": {"Boss": ONE}}))
    with pytest.raises(InvalidError, match="replicas of Chief must be exactly 1"):
        await create(client, Case(WithRules, {"replicaSpecs": {"Chief": TWO}}))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_crd_is_established_without_other_conditions(client: Client, kind: type[DLJob]) -> None:
    stored = await client.get(CUSTOM_RESOURCE_DEFINITIONS, kind.job_type.resource.qualified_name)
    conditions = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_a_status_is_stored_unchanged_and_does_not_change_the_generation(client: Client) -> None:
    resource = Plain.job_type.resource
    created = await create(client, VALID["one role"])
    name = created["metadata"]["name"]
    status = {"conditions": [{"type": "Running", "status": "True"}], "dlop": {"attempt": 2, "completedIndexes": {"Worker": "0-3"}}}
    await client.patch(resource, name, {"status": status}, namespace="default", subresource="status")
    stored = await client.get(resource, name, namespace="default")
    assert stored["status"] == status
    assert stored["metadata"]["generation"] == created["metadata"]["generation"]


class Older(WithRules):
    """A kind whose CRD had no rules when its first job was stored."""

    job_type = JobType("older.crds.dlop.dev", "v1", "ChiefJob")


async def test_the_status_of_a_job_that_is_older_than_a_rule_can_be_written(client: Client) -> None:
    resource, invalid = Older.job_type.resource, Case(Older, {"replicaSpecs": {"Chief": TWO}})
    (crd,) = build_crds([Older])
    without_rules = copy.deepcopy(crd)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    without_rules["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": anything, "status": anything},
    }
    await apply(client, [without_rules], report=lambda _: None)
    name = (await create(client, invalid))["metadata"]["name"]
    await apply(client, [crd], report=lambda _: None)
    async with asyncio.timeout(30):
        while not await is_rejected(client, invalid):  # noqa: ASYNC110 - the server does not report it
            await asyncio.sleep(0.05)

    for phase in ("Running", "Succeeded"):
        await client.patch(resource, name, {"status": {"phase": phase}}, namespace="default", subresource="status")
    stored = await client.get(resource, name, namespace="default")
    assert (stored["status"], stored["spec"]) == ({"phase": "Succeeded"}, invalid.spec)


async def is_rejected(client: Client, case: Case) -> bool:
    """Whether the server enforces the rules. A changed CRD takes effect after a moment."""
    try:
        await client.create(case.kind.job_type.resource, job(case), namespace="default", dry_run=True)
    except InvalidError:
        return True
    return False


async def test_a_kind_with_one_role_has_a_scale_subresource(client: Client) -> None:
    resource = Plain.job_type.resource
    created = await create(client, VALID["one role"])
    name = created["metadata"]["name"]
    await client.patch(resource, name, {"spec": {"replicas": 5}}, namespace="default", subresource="scale")
    stored = await client.get(resource, name, namespace="default")
    assert stored["spec"]["replicaSpecs"]["Worker"]["replicas"] == 5


async def test_the_table_has_a_state_column(client: Client) -> None:
    resource = Plain.job_type.resource
    created = await create(client, VALID["one role"])
    name = created["metadata"]["name"]
    status = {"conditions": [{"type": "Created"}, {"type": "Running"}]}
    await client.patch(resource, name, {"status": status}, namespace="default", subresource="status")
    path = resource.path(namespace="default", name=name)
    response = await client.call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert b'"State"' in response.body
    assert b'"Running"' in response.body


async def test_applying_again_changes_nothing(client: Client) -> None:
    messages: list[str] = []
    await apply(client, build_crds(KINDS), report=messages.append)
    assert all(line.endswith(" unchanged") for line in messages), messages


@pytest.mark.parametrize("crd", build_crds(KINDS), ids=lambda crd: crd["metadata"]["name"])
def test_a_crd_is_below_the_size_limit(crd: JsonObject) -> None:
    assert len(to_yaml(crd)) < SIZE_LIMIT_BYTES
