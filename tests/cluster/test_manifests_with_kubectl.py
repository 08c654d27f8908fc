"""The directory `manifests/` can be applied with kubectl, and the examples are accepted afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

ROOT = Path(__file__).resolve().parents[2]
# The kind of the fourth example is not part of dlop.
BUILT_IN_EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*/*.yaml")) if path.parent.name != "04-custom-framework"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    with RealCluster.started() as cluster:
        yield cluster


@pytest.fixture
def kubectl(cluster: RealCluster, tmp_path: Path) -> Kubectl:
    return Kubectl(cluster, tmp_path)


class Kubectl:
    """Runs the real kubectl on the real API server."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._command = [str(require_assets(("kubectl",))["kubectl"]), "--kubeconfig", str(cluster.kubeconfig_path)]
        self._environment = {"HOME": str(folder), "KUBECACHEDIR": str(folder)}

    def __call__(self, *arguments: str) -> str:
        process = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=60, env=self._environment)
        assert process.returncode == 0, process.stderr
        return process.stdout


def test_applying_the_cluster_wide_operator_again_changes_nothing(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "cluster-wide"))
    budget = ("get", "poddisruptionbudget", "dlop", "-n", "dlop-system", "-o", "jsonpath={.metadata.resourceVersion}")
    version = kubectl(*budget)
    again = kubectl("apply", "-k", str(ROOT / "manifests" / "cluster-wide"))
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    # kubectl always sends the selector of a PodDisruptionBudget, and reports it as configured.
    assert changed == ["poddisruptionbudget.policy/dlop configured"]
    assert kubectl(*budget) == version


def test_the_kubeflow_manifests_include_the_optional_permissions_of_kubeflows_operator(kubectl: Kubectl) -> None:
    applied = kubectl("apply", "-k", str(ROOT / "manifests" / "kubeflow"))
    for name in ("dlop", "dlop-mpi", "dlop-hpa", "dlop-gang"):
        assert f"clusterrole.rbac.authorization.k8s.io/{name} " in applied
        assert f"clusterrolebinding.rbac.authorization.k8s.io/{name} " in applied
    subject = "jsonpath={.subjects[0].kind} {.subjects[0].namespace}/{.subjects[0].name}"
    assert kubectl("get", "clusterrolebinding", "dlop-mpi", "-o", subject) == "ServiceAccount dlop-system/dlop"


def test_optional_permissions_can_be_applied_without_changing_the_deployment(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "cluster-wide"))
    flags = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--gang-scheduler-name=volcano"}]'
    kubectl("patch", "deployment", "dlop", "-n", "dlop-system", "--type", "json", "--patch", flags)
    applied = kubectl("apply", "-f", str(ROOT / "manifests" / "kubeflow" / "permissions.yaml")).splitlines()
    assert {line.split("/")[0] for line in applied} == {
        "clusterrole.rbac.authorization.k8s.io",
        "clusterrolebinding.rbac.authorization.k8s.io",
    }
    for verb, resource in (("list", "priorityclasses.scheduling.k8s.io"), ("create", "pods/exec")):
        assert kubectl("auth", "can-i", verb, resource, "--as", "system:serviceaccount:dlop-system:dlop").strip() == "yes"
    assert "volcano" in kubectl("get", "deployment", "dlop", "-n", "dlop-system", "-o", "jsonpath={.spec.template.spec.containers[0].args}")


def test_an_operator_for_one_namespace_is_applied_to_the_namespace_of_the_overlay(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "overlay").mkdir()
    base = ROOT / "manifests" / "one-namespace" / "operator.yaml"
    (tmp_path / "overlay" / "operator.yaml").write_text(base.read_text())
    (tmp_path / "overlay" / "kustomization.yaml").write_text("namespace: team\nresources: [operator.yaml]\n")
    kubectl("create", "namespace", "team")
    applied = kubectl("apply", "-k", str(tmp_path / "overlay"))
    assert "clusterrole" not in applied
    subjects = kubectl("get", "rolebindings", "-n", "team", "-o", "jsonpath={.items[*].subjects[*].namespace}")
    assert set(subjects.split()) == {"team"}


@pytest.mark.parametrize("example", BUILT_IN_EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_is_accepted_and_listed(kubectl: Kubectl, example: Path) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "crds"))
    kubectl("wait", "--for", "condition=Established", "crd", "--all", "--timeout=30s")
    assert kubectl("apply", "-f", str(example)).splitlines()[-1].endswith(("created", "unchanged"))
    assert "AGE" in kubectl("get", "-f", str(example))


def test_kubectl_explain_describes_a_field(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "manifests" / "crds"))
    kubectl("wait", "--for", "condition=Established", "crd", "--all", "--timeout=30s")
    explained = kubectl("explain", "mxjobs.spec.replicaSpecs.mxPort", "--api-version", "fioravanzo.org/v1alpha1")
    assert "Defaults to 9000" in explained
