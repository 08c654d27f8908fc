"""Pods of jobs with git repositories: the init containers, their volumes, and where the containers find the code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop import DLJob, Options
from dlop.api.scale_plan import Member
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob as KubeDLPyTorchJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.types import JsonObject
from tests.unit.job.jobs import PairJob, make, pair_spec

IMAGE = "registry.example.org/git-sync:v4"
OPTIONS = Options(git_sync_image=IMAGE)
SOURCE = "https://example.org/team/train.git"
RESOURCES = {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": 1}}


def pod_spec(job: DLJob, *, role: str = "") -> JsonObject:
    replicas = [replica for replica in job.all_replicas() if replica.role == role or not role]
    spec: JsonObject = replicas[0].pod()["spec"]
    return spec


def pair_pod(*sources: JsonObject, options: Options = OPTIONS, pod: JsonObject | None = None, **container: Any) -> JsonObject:
    spec = pair_spec(run_policy={"codeSync": list(sources)}, **container)
    spec["replicaSpecs"]["Leader"]["template"]["spec"].update(pod or {})
    return pod_spec(make(PairJob, spec, options=options))


def values(container: JsonObject) -> JsonObject:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]}


def both(name: str, value: Any) -> JsonObject:
    return {f"GIT_SYNC_{name}": value, f"GITSYNC_{name}": value}


MINIMUM = {
    **both("REPO", SOURCE),
    **both("ONE_TIME", "true"),
    "GIT_SYNC_MAX_SYNC_FAILURES": "3",
    "GITSYNC_MAX_FAILURES": "3",
    **both("ROOT", "/code"),
    "GIT_SYNC_DEST": "train",
    "GITSYNC_LINK": "train",
    "GITSYNC_DEPTH": "0",
}
CLONE = {
    "name": "git-sync-code",
    "image": IMAGE,
    "imagePullPolicy": "IfNotPresent",
    "volumeMounts": [{"name": "git-sync", "mountPath": "/code"}],
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


def test_a_pytorchjob_of_kubeflow_gets_the_code_in_all_containers() -> None:
    containers = [
        {"name": "log", "image": "log:1"},
        {"name": "pytorch", "image": "train:1", "workingDir": "/app", "resources": RESOURCES},
    ]
    role = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    policy = {"codeSync": [{"source": SOURCE, "branch": "main", "depth": 2}]}
    job = make(PyTorchJob, {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": role, "Worker": role}}, options=OPTIONS)
    for name in ("Master", "Worker"):
        spec = pod_spec(job, role=name)
        clone = spec["initContainers"][0]
        assert {field: value for field, value in clone.items() if field != "env"} == {**CLONE, "resources": RESOURCES}
        assert values(clone) == {**MINIMUM, "GIT_SYNC_BRANCH": "main", "GITSYNC_REF": "main", **both("DEPTH", "2")}
        assert spec["volumes"] == [{"name": "git-sync", "emptyDir": {}}]
        assert [container["volumeMounts"] for container in spec["containers"]] == [
            [{"name": "git-sync", "mountPath": "/train", "subPath": "train"}],
            [{"name": "git-sync", "mountPath": "/app/train", "subPath": "train"}],
        ]


def test_an_mxjob_gets_the_code() -> None:
    template = {"spec": {"containers": [{"name": "mxnet", "image": "mx:1"}]}}
    roles = [{"replicas": 1, "mxReplicaType": "SCHEDULER", "template": template}]
    spec = pod_spec(make(MXJob, {"runPolicy": {"codeSync": [{"source": SOURCE}]}, "replicaSpecs": roles}, options=OPTIONS))
    assert {field: value for field, value in spec["initContainers"][0].items() if field != "env"} == CLONE
    assert values(spec["initContainers"][0]) == MINIMUM
    assert spec["containers"][0]["volumeMounts"] == [{"name": "git-sync", "mountPath": "/train", "subPath": "train"}]


def test_the_annotation_of_kubedl_gives_its_variables_and_its_names() -> None:
    annotation = {
        "source": SOURCE,
        "image": "kubedl/git-sync:v1",
        "rootPath": "/root-of-code",
        "destPath": "src/code",
        "branch": "main",
        "revision": "v2",
        "depth": "1",
        "maxFailures": 5,
        "ssh": True,
        "sshFile": "/keys/id",
        "envs": [{"name": "GIT_SYNC_WAIT", "value": "1"}, {"name": "GIT_SYNC_REPO", "value": "other"}],
    }
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "train:1", "workingDir": "/app"}]}}}
    job = make(
        KubeDLPyTorchJob,
        {"pytorchReplicaSpecs": {"Master": role}},
        annotations={"kubedl.io/git-sync-config": msgspec.json.encode(annotation).decode()},
    )
    spec = pod_spec(job)
    (clone,) = spec["initContainers"]
    assert (clone["name"], clone["image"]) == ("git-sync-code", "kubedl/git-sync:v1")
    of_kubedl = {name: value for name, value in values(clone).items() if not name.startswith("GITSYNC_")}
    assert of_kubedl == {
        "GIT_SYNC_WAIT": "1",
        "GIT_SYNC_REPO": SOURCE,
        "GIT_SYNC_ONE_TIME": "true",
        "GIT_SYNC_MAX_SYNC_FAILURES": "5",
        "GIT_SYNC_BRANCH": "main",
        "GIT_SYNC_REV": "v2",
        "GIT_SYNC_DEPTH": "1",
        "GIT_SYNC_ROOT": "/root-of-code",
        "GIT_SYNC_DEST": "code",
        "GIT_SYNC_SSH": "true",
        "GIT_SSH_KEY_FILE": "/keys/id",
    }
    assert values(clone)["GITSYNC_REF"] == "v2"
    assert clone["volumeMounts"] == [{"name": "git-sync", "mountPath": "/root-of-code"}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "git-sync", "mountPath": "/app/src/code", "subPath": "code"}]


def test_the_master_and_the_members_of_an_elasticjob_get_the_code() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
    roles = {"dlrover-master": {"replicas": 1, "template": template}, "worker": {"replicas": 2, "template": template}}
    elastic = {"distributionStrategy": "AllreduceStrategy", "replicaSpecs": roles}
    job = make(ElasticJob, {**elastic, "runPolicy": {"codeSync": [{"source": SOURCE}]}}, options=OPTIONS)
    member = job.member(Member(role="worker", id=1, rank=1))
    assert member is not None
    for pod in (pod_spec(job), member.pod()["spec"]):
        assert [container["name"] for container in pod["initContainers"]] == ["git-sync-code"]


def test_each_repository_has_its_own_volume_and_container() -> None:
    spec = pair_pod({"source": SOURCE}, {"source": "https://example.org/data.git", "destPath": "in/data", "image": "git-sync:3"})
    assert [(each["name"], each["image"]) for each in spec["initContainers"]] == [
        ("git-sync-code", IMAGE),
        ("git-sync-code-1", "git-sync:3"),
    ]
    assert [each["volumeMounts"] for each in spec["initContainers"]] == [
        [{"name": "git-sync", "mountPath": "/code"}],
        [{"name": "git-sync-1", "mountPath": "/code"}],
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "git-sync", "mountPath": "/train", "subPath": "train"},
        {"name": "git-sync-1", "mountPath": "/in/data", "subPath": "data"},
    ]


def test_the_users_volumes_mounts_and_init_containers_come_first_and_are_unchanged() -> None:
    own: JsonObject = {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "proxy", "image": "p", "restartPolicy": "Always"}],
    }
    spec = pair_pod({"source": SOURCE}, pod=own, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    assert spec["volumes"] == [*own["volumes"], {"name": "git-sync", "emptyDir": {}}]
    assert spec["initContainers"][0] == own["initContainers"][0]
    assert [container["name"] for container in spec["initContainers"]] == ["proxy", "git-sync-code"]
    assert spec["containers"][0]["volumeMounts"][0] == {"name": "data", "mountPath": "/data"}


def test_user_name_and_password_are_references_to_the_secret() -> None:
    spec = pair_pod({"source": SOURCE, "secretName": "git"})
    reference = {key: {"secretKeyRef": {"name": "git", "key": key}} for key in ("username", "password")}
    expected = {**MINIMUM, **both("USERNAME", reference["username"]), **both("PASSWORD", reference["password"])}
    assert values(spec["initContainers"][0]) == expected
    assert [volume["name"] for volume in spec["volumes"]] == ["git-sync"]


def test_a_user_name_in_the_annotation_needs_only_the_password_of_the_secret() -> None:
    annotation = {"source": SOURCE, "user": "me", "secretName": "git"}
    annotations = {"kubedl.io/git-sync-config": msgspec.json.encode(annotation).decode()}
    spec = pod_spec(make(PairJob, pair_spec(), annotations=annotations, options=OPTIONS))
    password = {"secretKeyRef": {"name": "git", "key": "password"}}
    assert values(spec["initContainers"][0]) == {**MINIMUM, **both("USERNAME", "me"), **both("PASSWORD", password)}


def test_for_ssh_the_secret_is_mounted() -> None:
    source = "git@example.org:team/train.git"
    spec = pair_pod({"source": source, "secretName": "key"})
    (clone,) = spec["initContainers"]
    assert values(clone) == {**MINIMUM, **both("REPO", source), **both("SSH", "true")}
    assert clone["volumeMounts"][1:] == [{"name": "git-sync-secret", "mountPath": "/etc/git-secret", "readOnly": True}]
    assert spec["volumes"][1:] == [{"name": "git-sync-secret", "secret": {"secretName": "key", "defaultMode": 0o444}}]
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["git-sync"]


@pytest.mark.parametrize("source", [SOURCE, "git@example.org:team/train.git"])
def test_without_credentials_no_secret_is_referenced(source: str) -> None:
    spec = pair_pod({"source": source, "secretName": "git"}, options=Options(git_sync_image=IMAGE, git_sync_credentials=False))
    assert "secret" not in msgspec.json.encode([spec["volumes"], spec["initContainers"]]).decode().lower()


def test_values_with_dollar_signs_are_not_expanded_by_kubernetes() -> None:
    spec = pair_pod({"source": "https://example.org/$(HOME)/train.git", "branch": "$$a"})
    variables = values(spec["initContainers"][0])
    assert (variables["GIT_SYNC_REPO"], variables["GIT_SYNC_BRANCH"]) == ("https://example.org/$$(HOME)/train.git", "$$$$a")


def test_the_depth_of_the_user_in_the_variables_is_kept() -> None:
    spec = pair_pod({"source": SOURCE, "envs": [{"name": "GITSYNC_DEPTH", "value": "9"}]})
    assert values(spec["initContainers"][0])["GITSYNC_DEPTH"] == "9"


def test_a_job_without_repositories_has_no_init_container() -> None:
    spec = pair_pod()
    assert not {"initContainers", "volumes"} & spec.keys()
    assert "volumeMounts" not in spec["containers"][0]


def test_rendering_does_not_change_the_template() -> None:
    job = make(PairJob, pair_spec(run_policy={"codeSync": [{"source": SOURCE}]}, volumeMounts=[]), options=OPTIONS)
    assert pod_spec(job) == pod_spec(job)
    assert job.spec.roles[0].template["spec"]["containers"][0]["volumeMounts"] == []
