"""ElasticJob and ScalePlan: invalid specs, what the API server rejects, and the CRDs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop import SpecError
from dlop.api.crd import build_crds
from dlop.deploy.kustomize import to_yaml
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.kube.errors import InvalidError
from dlop.kube.types import JsonObject
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.spec_warnings import spec_warnings
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job, scale_plan, template
from tests.unit.job.jobs import make

MAX_CRD_BYTES = 100_000
"""`kubectl apply` stores a copy of the object in an annotation, and annotations are limited to 256 KB."""


def job(**fields: Any) -> ElasticJob:
    return make(ElasticJob, elastic_job(**fields)["spec"])


def problems(manifest: JsonObject) -> list[str]:
    with pytest.raises(SpecError) as caught:
        make(ElasticJob, manifest["spec"]).spec  # noqa: B018
    return [str(problem) for problem in caught.value.problems]


def without_role(role: str, **fields: Any) -> JsonObject:
    manifest = elastic_job(**fields)
    del manifest["spec"]["replicaSpecs"][role]
    return manifest


INVALID: dict[str, tuple[JsonObject, list[str]]] = {
    "strategy": (
        elastic_job(strategy="Local"),
        [
            "spec.distributionStrategy: must be one of ParameterServerStrategy, AllreduceStrategy, CustomStrategy, got 'Local'",
        ],
    ),
    "no worker": (
        without_role("worker", strategy="ParameterServerStrategy", ps=1),
        ["spec.replicaSpecs.worker: is missing; a job with ParameterServerStrategy needs it"],
    ),
    "no parameter server": (
        elastic_job(strategy="ParameterServerStrategy"),
        ["spec.replicaSpecs.ps: is missing; a job with ParameterServerStrategy needs it"],
    ),
    "custom strategy": (
        elastic_job(strategy="CustomStrategy"),
        ["spec.replicaSpecs.ps: is missing; a job with CustomStrategy needs it"],
    ),
    "priority": (
        elastic_job(replicaSpecs={"worker": {"template": template(), "priority": "1.5"}}),
        ["spec.replicaSpecs.worker.priority: must be high, low or a fraction above 0 and up to 1, got '1.5'"],
    ),
    "limit": (
        elastic_job(resourceLimits={"cpu": "many", "memory": "1Gi"}),
        ["spec.resourceLimits.cpu: is not a quantity; use a value like 500m or 2Gi"],
    ),
    "no container of the master": (
        elastic_job(replicaSpecs={"dlrover-master": {"template": {"spec": {"containers": []}}}}),
        ["spec.replicaSpecs.dlrover-master.template.spec.containers: must have at least one container"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_spec_is_rejected_with_the_paths_of_its_fields(name: str) -> None:
    manifest, expected = INVALID[name]
    assert problems(manifest) == expected


def test_negative_replicas_and_an_unknown_role_are_rejected_with_their_paths() -> None:
    (replicas,) = problems(elastic_job(workers=-1))
    assert replicas.startswith("spec.replicaSpecs.worker.replicas: ")
    (role,) = problems(elastic_job(replicaSpecs={"servers": {"template": template()}}))
    assert role.startswith("spec.replicaSpecs.servers: ")


@pytest.mark.parametrize(
    "spec",
    [
        *(5, [], {}, {"replicaSpecs": 1}, {"replicaSpecs": {"worker": []}}, {"replicaSpecs": {"worker": {"template": 5}}}),
        {"replicaSpecs": {"worker": {"template": template()}, "dlrover-master": {"template": {"spec": {"containers": [5]}}}}},
        {"replicaSpecs": {"worker": {"template": template(), "priority": {}}}, "resourceLimits": [], "distributionStrategy": 3},
    ],
)
def test_a_malformed_spec_fails_the_job_with_its_problems(spec: Any) -> None:
    status = make(ElasticJob, spec).reconcile(Snapshot(), 1000.0).status
    assert status is not None
    assert (status["phase"], status["conditions"][-1]["reason"]) == ("Failed", "InvalidSpec")
    assert status["conditions"][-1]["message"].startswith("spec")
    assert status["status"]["conditions"] == status["conditions"]


def test_fields_without_effect_are_reported() -> None:
    warned = job(envs={}, enableElasticScheduling=True, enableDynamicSharding=False)
    names = {"spec.envs", "spec.enableElasticScheduling", "spec.enableDynamicSharding"}
    assert {warning.path: warning.message for warning in spec_warnings(warned)} == dict.fromkeys(names, "has no effect; remove it")
    assert list(spec_warnings(job())) == []


def test_an_unknown_platform_is_reported_and_ignored() -> None:
    (warning,) = spec_warnings(make(ElasticJob, elastic_job()["spec"], annotations={"dlop.dev/elasticjob-platform": "K8s"}))
    assert str(warning) == (
        "metadata.annotations[dlop.dev/elasticjob-platform]: must be pyk8s or k8s, got 'K8s'; "
        "the job is on platform pyk8s, as --elasticjob-platform says"
    )


def example(name: str, strategy: str, roles: JsonObject, **spec: Any) -> JsonObject:
    """The shape of an example of DLRover."""
    manifest = elastic_job(name, strategy=strategy, **spec)
    manifest["metadata"]["annotations"] = {}
    manifest["spec"]["replicaSpecs"] = roles
    return manifest


def published(restart: str = "Never", **container: Any) -> JsonObject:
    pod = template(imagePullPolicy="Always", command=["/bin/bash", "-c", "dlrover-run --nnodes=$WORKER_NUM train.py"], **container)
    return {"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}}, "spec": {**pod["spec"], "restartPolicy": restart}}


ONE_CPU: JsonObject = {"resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": 1, "memory": "2Gi"}}}
MASTER_WITHOUT_IMAGE: JsonObject = {
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "imagePullPolicy": "Always"}]}}
}
EXAMPLES = (
    example("torch-mnist", "AllreduceStrategy", {"worker": {"replicas": 4, "template": published("Always", **ONE_CPU)}}),
    example(
        "deepctr-auto-scale",
        "ParameterServerStrategy",
        {
            "ps": {"autoScale": True, "template": published()},
            "worker": {"autoScale": True, "restartCount": 3, "template": published()},
            "evaluator": {"autoScale": True, "replicas": 1, "template": published()},
            "dlrover-master": MASTER_WITHOUT_IMAGE,
        },
        resourceLimits={"cpu": "15", "memory": "30000Mi"},
        optimizeMode="cluster",
    ),
    example(
        "iris-estimator",
        "ParameterServerStrategy",
        {
            "ps": {"restartCount": 3, "replicas": 3, "priority": "high", "template": published(**ONE_CPU)},
            "chief": {"restartCount": 1, "template": published()},
            "worker": {"restartCount": 3, "template": published(), "criticalNodes": "0:3"},
        },
    ),
)


@virtual_time
async def test_jobs_in_the_form_of_dlrovers_examples_start_their_masters() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        for manifest in EXAMPLES:
            view = await kit.submit(manifest)
            await kit.until(view, phase="Running", within_seconds=60)
            (pod,) = view.pods.values()
            container = pod["spec"]["containers"][0]
            assert container["image"].startswith("registry.cn-hangzhou.aliyuncs.com/intell-ai/dlrover")
            assert container["command"][3:5] == ["--platform", "pyk8s"]
            stored = view.body["spec"]["replicaSpecs"]
            assert {role: fields.get("criticalNodes") for role, fields in stored.items()} == {
                role: fields.get("criticalNodes") for role, fields in manifest["spec"]["replicaSpecs"].items()
            }


def test_the_restart_policy_of_a_template_is_not_reported_because_the_master_reads_it() -> None:
    assert list(spec_warnings(job(replicaSpecs={"worker": {"template": published("Always")}}))) == []


REJECTED: dict[str, tuple[JsonObject, str]] = {
    "strategy": (elastic_job(strategy="Local"), "spec.distributionStrategy"),
    "no worker": (without_role("worker"), "spec.replicaSpecs.worker"),
    "negative replicas": (elastic_job(workers=-1), "spec.replicaSpecs.worker.replicas"),
    "no container of the master": (INVALID["no container of the master"][0], "spec.replicaSpecs.dlrover-master.template.spec.containers"),
    "two masters": (
        elastic_job(replicaSpecs={"dlrover-master": {"replicas": 2, "template": template()}}),
        "spec.replicaSpecs.dlrover-master.replicas",
    ),
    "long name": (elastic_job("e" * 38), "metadata.name"),
}
REJECTED_PLANS: dict[str, tuple[JsonObject, str]] = {
    "no owner": (scale_plan(owner=None, ownerJob=""), "spec.ownerJob"),
    "negative replicas": (scale_plan(replicas={"worker": -1}), "spec.replicaResourceSpecs.worker.replicas"),
    "negative rank": (scale_plan(create=[{"type": "worker", "rankIndex": -1}]), "spec.createPods[0].rankIndex"),
    "resource": (scale_plan(createPods=[{"type": "worker", "resource": {"cpu": []}}]), "spec.createPods[0].resource.cpu"),
}


@virtual_time
async def test_the_api_server_rejects_invalid_jobs_and_plans_and_names_the_field() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        for name, (manifest, path) in REJECTED.items():
            with pytest.raises(InvalidError) as caught:
                await kit.submit(manifest)
            assert path in str(caught.value), name
        for name, (manifest, path) in REJECTED_PLANS.items():
            with pytest.raises(InvalidError) as caught:
                await kit.client.create(SCALE_PLANS, manifest, namespace="default")
            assert path in str(caught.value), name


@virtual_time
async def test_a_name_of_37_characters_is_accepted_and_its_master_and_service_are_created() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await kit.submit(elastic_job("e" * 37))
        await kit.until(view, phase="Running", within_seconds=60)
        (service,) = view.services
        assert (service, len(service)) == (f"elasticjob-{'e' * 37}-dlrover-master", 63)


def test_the_crds_are_small_enough_for_kubectl_apply() -> None:
    crds = {crd["metadata"]["name"]: crd for crd in build_crds([ElasticJob])}
    assert sorted(crds) == ["elasticjobs.elastic.iml.github.io", "scaleplans.elastic.iml.github.io"]
    for crd in crds.values():
        assert len(msgspec.json.encode(crd)) < MAX_CRD_BYTES
        assert len(to_yaml(crd)) < MAX_CRD_BYTES


def test_both_crds_have_the_columns_and_the_status_subresource_of_dlrover() -> None:
    for crd in build_crds([ElasticJob]):
        (version,) = crd["spec"]["versions"]
        assert (version["name"], version["subresources"]) == ("v1alpha1", {"status": {}})
        columns = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
        assert {"Phase": ".status.phase", "Age": ".metadata.creationTimestamp"}.items() <= columns.items()
        assert crd["spec"]["scope"] == "Namespaced"
