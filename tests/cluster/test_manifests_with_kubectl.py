"""The folder `manifests/` is what a person with kubectl needs, and examples are taken once it is applied."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

ROOT = Path(__file__).resolve().parents[2]
# The kind of the fourth is not one that comes with dlop.
OWN_EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*/job*.yaml")) if path.parent.name != "04-custom-framework"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    with RealCluster.started() as found:
        yield found


@pytest.fixture
def kubectl(cluster: RealCluster, tmp_path: Path) -> Kubectl:
    return Kubectl(cluster, tmp_path)


class Kubectl:
    """An unmodified kubectl on the real API server."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._words = [str(require_assets(("kubectl",))["kubectl"]), "--kubeconfig", str(cluster.kubeconfig_path)]
        self._environment = {"HOME": str(folder), "KUBECACHEDIR": str(folder)}

    def __call__(self, *words: str) -> str:
        said = subprocess.run([*self._words, *words], capture_output=True, text=True, timeout=60, env=self._environment)
        assert said.returncode == 0, said.stderr
        return said.stdout


def test_a_cluster_wide_operator_is_applied_and_applied_again(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "cluster-wide"))
    again = kubectl("apply", "-k", str(ROOT / "manifests" / "cluster-wide"))
    assert [line for line in again.splitlines() if not line.endswith("unchanged")] == []


def test_who_comes_from_kubeflows_operator_gets_the_rights_for_mpi_jobs_and_gangs_besides(kubectl: Kubectl) -> None:
    applied = kubectl("apply", "-k", str(ROOT / "manifests" / "kubeflow"))
    for name in ("dlop", "dlop-mpi", "dlop-gang"):
        assert f"clusterrole.rbac.authorization.k8s.io/{name} " in applied
        assert f"clusterrolebinding.rbac.authorization.k8s.io/{name} " in applied
    subject = "jsonpath={.subjects[0].kind} {.subjects[0].namespace}/{.subjects[0].name}"
    assert kubectl("get", "clusterrolebinding", "dlop-mpi", "-o", subject) == "ServiceAccount dlop-system/dlop"


def test_the_rights_alone_can_be_applied_to_an_operator_that_runs_and_leave_its_deployment_as_it_is(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "cluster-wide"))
    flags = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--gang-scheduler-name=volcano"}]'
    kubectl("patch", "deployment", "dlop", "-n", "dlop-system", "--type", "json", "--patch", flags)
    applied = kubectl("apply", "-f", str(ROOT / "manifests" / "kubeflow" / "rights.yaml")).splitlines()
    assert {line.split("/")[0] for line in applied} == {
        "clusterrole.rbac.authorization.k8s.io",
        "clusterrolebinding.rbac.authorization.k8s.io",
    }
    for verb, resource in (("list", "priorityclasses.scheduling.k8s.io"), ("create", "pods/exec")):
        assert kubectl("auth", "can-i", verb, resource, "--as", "system:serviceaccount:dlop-system:dlop").strip() == "yes"
    assert "volcano" in kubectl("get", "deployment", "dlop", "-n", "dlop-system", "-o", "jsonpath={.spec.template.spec.containers[0].args}")


def test_an_operator_of_one_namespace_is_applied_where_the_overlay_says(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    base = ROOT / "manifests" / "one-namespace" / "operator.yaml"
    (tmp_path / "mine" / "operator.yaml").write_text(base.read_text())
    (tmp_path / "mine" / "kustomization.yaml").write_text("namespace: team\nresources: [operator.yaml]\n")
    kubectl("create", "namespace", "team")
    applied = kubectl("apply", "-k", str(tmp_path / "mine"))
    assert "clusterrole" not in applied
    subjects = kubectl("get", "rolebindings", "-n", "team", "-o", "jsonpath={.items[*].subjects[*].namespace}")
    assert set(subjects.split()) == {"team"}


@pytest.mark.parametrize("example", OWN_EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_is_taken_and_listed(kubectl: Kubectl, example: Path) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "crds"))
    kubectl("wait", "--for", "condition=Established", "crd", "--all", "--timeout=30s")
    assert kubectl("apply", "-f", str(example)).splitlines()[-1].endswith(("created", "unchanged"))
    assert "AGE" in kubectl("get", "-f", str(example))


def test_the_schema_is_explained(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "crds"))
    kubectl("wait", "--for", "condition=Established", "crd", "--all", "--timeout=30s")
    explained = kubectl("explain", "mxjobs.spec.replicaSpecs.mxPort", "--api-version", "fioravanzo.org/v1alpha1")
    assert "9000 when left out" in explained
