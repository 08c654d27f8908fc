"""The command line: output, exit codes and error messages."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dlop.api.crd import build_crds
from dlop.cli.main import COMMANDS, main
from dlop.deploy.deployment import DeployOptions
from dlop.deploy.installation import operator_objects
from dlop.deploy.rbac import all_permission_sets
from dlop.frameworks.registry import load_registry
from dlop.kube.types import JsonObject
from dlop.operator.health import list_endpoints
from dlop.operator.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
FRAMEWORK = ("--framework", "tests.kinds_for_crds:WithRules")
MANIFEST = """\
apiVersion: crds.dlop.dev/v1
kind: ChiefJob
metadata:
  name: first
  annotations: {since: 2026-01-01}
spec:
  replicaSpecs:
    Chief:
      replicas: 1
      template:
        spec:
          containers:
            - name: main
              image: trainer:1
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST)
    return path


def objects(text: str) -> list[JsonObject]:
    return list(yaml.safe_load_all(text))


# --- which command -------------------------------------------------------------------------------------------------------


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"{name} " in printed
        assert command.summary in printed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: dlop {name}" in capsys.readouterr().out


def test_an_unknown_command_suggests_a_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rendr"]) == 2
    assert capsys.readouterr().err == "dlop rendr: unknown command; did you mean 'render'?\n"


def test_the_default_command_runs_the_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "none"]) == 2
    assert capsys.readouterr().err.startswith("dlop run: --workers: invalid value 'none'")


def test_invalid_arguments_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "--nonsense"]) == 2
    assert capsys.readouterr().err == "dlop crds: unrecognized arguments: --nonsense. See `dlop crds --help`.\n"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("dlop 0.")


# --- generated manifests -------------------------------------------------------------------------------------------------


def test_crds_can_be_limited_to_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", *FRAMEWORK, "--kinds", "ChiefJob"]) == 0
    (crd,) = objects(capsys.readouterr().out)
    assert crd["metadata"]["name"] == "chiefjobs.crds.dlop.dev"


def test_an_unknown_framework_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "--framework", "no_such_module:Job"]) == 1
    assert "cannot import module 'no_such_module' of 'no_such_module:Job'" in capsys.readouterr().err


def test_a_framework_of_the_working_directory_does_not_shadow_an_installed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, kind in (("installed", "WithRules"), ("work", "Plain")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shadowed_framework.py").write_text(f"from tests.kinds_for_crds import {kind} as Job\n")
    (tmp_path / "work" / "own_framework.py").write_text("from tests.kinds_for_crds import Plain as Job\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path), str(tmp_path / "installed")])
    printed = []
    for module, kind in (("shadowed_framework", "ChiefJob"), ("own_framework", "RingJob")):
        assert main(["crds", "--framework", f"{module}:Job", "--kinds", kind]) == 0
        printed += [crd["spec"]["names"]["kind"] for crd in objects(capsys.readouterr().out)]
    assert printed == ["ChiefJob", "RingJob"]


def test_a_spec_model_without_a_crd_schema_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "--framework", "tests.unit.cli.invalid_framework:EitherJob"]) == 1
    assert "the spec model of EitherJob cannot be converted to a CRD schema: spec.value is a union" in capsys.readouterr().err


@pytest.mark.machine
def test_a_closed_output_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m dlop crds | head -n 1"
    piped = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (piped.stdout, piped.stderr) == ("apiVersion: apiextensions.k8s.io/v1\n", "")


def test_check_accepts_written_manifests_and_rejects_edited_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--out", str(tmp_path)]) == 0
    assert main(["manifests", "--check", str(tmp_path)]) == 0
    edited = tmp_path / "cluster-wide" / "operator.yaml"
    edited.write_text(edited.read_text().replace("dlop:latest", "dlop:mine"))
    (tmp_path / "crds" / "mxjobs.fioravanzo.org.yaml").unlink()
    capsys.readouterr()
    assert main(["manifests", "--check", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "operator.yaml differs from the generated file" in error
    assert "mxjobs.fioravanzo.org.yaml is missing" in error


def test_printed_manifests_are_one_stream_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--image", "dlop:mine"]) == 0
    printed = objects(capsys.readouterr().out)
    kinds = [item["kind"] for item in printed]
    assert kinds.index("CustomResourceDefinition") < kinds.index("Namespace") < kinds.index("Deployment")
    assert "Kustomization" not in kinds
    assert printed[-1]["spec"]["template"]["spec"]["containers"][0]["image"] == "dlop:mine"


def test_files_of_removed_kinds_are_deleted_and_other_files_are_kept(tmp_path: Path) -> None:
    assert main(["manifests", *FRAMEWORK, "--out", str(tmp_path)]) == 0
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    assert main(["manifests", "--out", str(tmp_path)]) == 0
    assert not (tmp_path / "crds" / "chiefjobs.crds.dlop.dev.yaml").exists()
    assert (tmp_path / "mine.yaml").exists()


def rules_of(text: str) -> dict[str, set[str]]:
    """The resources of each cluster role in a stream of objects."""
    roles = [item for item in yaml.safe_load_all(text) if item["kind"] == "ClusterRole"]
    return {role["metadata"]["name"]: {resource for rule in role["rules"] for resource in rule["resources"]} for role in roles}


@pytest.mark.parametrize("command", ["deploy", "manifests"])
def test_the_help_names_all_optional_permission_sets(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    described = set(re.findall(r"(\w+)\s+\(", capsys.readouterr().out))
    assert {permission_set.name for permission_set in all_permission_sets(load_registry())} <= described


def test_optional_permission_sets_are_separate_roles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests"]) == 0
    plain = rules_of(capsys.readouterr().out)
    assert main(["manifests", "--with", "mpi,hpa,gang"]) == 0
    chosen = rules_of(capsys.readouterr().out)
    assert not plain["dlop"] & {
        "pods/exec",
        "roles",
        "rolebindings",
        "serviceaccounts",
        "configmaps",
        "podgroups",
        "horizontalpodautoscalers",
    }
    assert chosen.items() >= plain.items()
    assert chosen.keys() - plain.keys() == {"dlop-mpi", "dlop-hpa", "dlop-gang"}
    assert chosen["dlop-mpi"] == {"pods/exec", "roles", "rolebindings", "serviceaccounts", "configmaps"}
    assert chosen["dlop-hpa"] == {"horizontalpodautoscalers"}
    assert chosen["dlop-gang"] == {"podgroups", "priorityclasses"}


def test_a_namespaced_operator_has_no_cluster_roles_and_no_rules_for_cluster_scoped_resources() -> None:
    options = DeployOptions(namespace="lab", watched_namespaces=("lab",), permission_sets=("mpi", "gang", "nodes"))
    rendered = operator_objects(tuple(load_registry()), options)
    assert not [item["metadata"]["name"] for item in rendered if item["kind"].startswith("ClusterRole") or item.get("rules") == []]
    (gang,) = [item for item in rendered if (item["kind"], item["metadata"]["name"]) == ("Role", "dlop-gang")]
    assert [rule["resources"] for rule in gang["rules"]] == [["podgroups"]]


def test_users_with_the_edit_role_may_scale_every_kind_with_a_scale_subresource() -> None:
    kinds = tuple(load_registry())
    scalable = {crd["metadata"]["name"] for crd in build_crds(kinds) if "scale" in crd["spec"]["versions"][0]["subresources"]}
    (edit,) = [item for item in operator_objects(kinds, DeployOptions()) if item["metadata"]["name"] == "dlop-edit"]
    rules = [rule for rule in edit["rules"] if {"get", "update", "patch"} <= set(rule["verbs"])]
    resources = {f"{resource}.{group}" for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]}
    assert scalable
    assert {name.replace("/scale", "") for name in resources if "/scale" in name} == scalable


def test_one_of_two_replicas_is_kept_during_a_drain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--replicas", "2"]) == 0
    rendered = {item["kind"]: item for item in objects(capsys.readouterr().out)}
    deployed, budget = rendered["Deployment"], rendered["PodDisruptionBudget"]
    assert deployed["spec"]["replicas"] == 2
    assert budget["spec"]["selector"] == deployed["spec"]["selector"]
    # minAvailable would block the drain of a node with the only replica.
    assert (budget["spec"]["maxUnavailable"], budget["spec"].get("minAvailable")) == (1, None)
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def metrics_objects(*metrics_from: str) -> dict[str, JsonObject]:
    """The Deployment, the NetworkPolicy and the Service of an operator, by kind."""
    rendered = operator_objects(tuple(load_registry()), DeployOptions(metrics_from=metrics_from))
    return {item["kind"]: item for item in rendered if item["kind"] in ("Deployment", "NetworkPolicy", "Service")}


def served_ports(deployed: JsonObject) -> dict[str, int]:
    """The port of each path that can be reached from outside the pod. The probes must use them."""
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    settings = Settings.load({}, {variable["name"]: variable["value"] for variable in container["env"]})
    reachable = {
        str(path): endpoint.port
        for endpoint in list_endpoints(settings, in_cluster=True)
        if endpoint.host == "0.0.0.0"
        for path in endpoint.paths
    }
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]
    assert [(probe["path"], ports[probe["port"]]) for probe in probes] == [(path, reachable[path]) for path in ("/healthz", "/readyz")]
    return reachable


def test_by_default_only_the_probes_can_be_reached_from_outside_the_pod() -> None:
    rendered = metrics_objects()
    reachable = served_ports(rendered["Deployment"])
    assert "/metrics" not in reachable
    assert rendered["NetworkPolicy"]["spec"]["ingress"] == [{"ports": [{"port": reachable["/healthz"], "protocol": "TCP"}]}]
    assert rendered["NetworkPolicy"]["spec"]["podSelector"] == rendered["Deployment"]["spec"]["selector"]
    assert "Service" not in rendered


def test_metrics_can_be_read_from_the_listed_namespaces_only() -> None:
    rendered = metrics_objects("monitoring", "team")
    port = served_ports(rendered["Deployment"])["/metrics"]
    _, rule = rendered["NetworkPolicy"]["spec"]["ingress"]
    ((expression,),) = [source["namespaceSelector"]["matchExpressions"] for source in rule["from"]]
    assert (expression["operator"], expression["values"]) == ("In", ["monitoring", "team"])
    assert [each["port"] for each in rule["ports"]] == [port]
    assert rendered["Service"]["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": str(port),
    }


def test_the_commands_take_the_namespaces_that_may_read_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--metrics-from", "monitoring,team"]) == 0
    (policy,) = [item for item in objects(capsys.readouterr().out) if item["kind"] == "NetworkPolicy"]
    assert policy == metrics_objects("monitoring", "team")["NetworkPolicy"]


def test_the_manifests_of_the_repository_are_up_to_date() -> None:
    assert main(["manifests", "--check", str(ROOT / "manifests")]) == 0


# --- render --------------------------------------------------------------------------------------------------------------


def test_services_are_rendered_before_pods(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", *FRAMEWORK, str(manifest), "--namespace", "team"]) == 0
    rendered = objects(capsys.readouterr().out)
    assert [item["kind"] for item in rendered] == ["Service", "Pod"]
    assert {item["metadata"]["namespace"] for item in rendered} == {"team"}


def test_a_job_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(MANIFEST))
    assert main(["render", *FRAMEWORK, "-"]) == 0
    assert len(objects(capsys.readouterr().out)) == 2


@pytest.mark.machine
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*/job.yaml")), ids=lambda path: path.parent.name)
def test_every_example_is_rendered(example: Path) -> None:
    words = [sys.executable, "-m", "dlop", "render", str(example)]
    for path in example.parent.glob("*.py"):
        for name in re.findall(r"^class (\w+)\(DLJob\)", path.read_text(), re.MULTILINE):
            words += ["--framework", f"{path.stem}:{name}"]
    rendered = subprocess.run(words, cwd=example.parent, capture_output=True, text=True, timeout=60)
    assert rendered.returncode == 0, rendered.stderr
    assert "kind: Pod" in rendered.stdout


def test_an_invalid_field_is_reported_with_file_line_and_path(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(MANIFEST.replace("replicas: 1", "replicas: 3").replace("name: main", "name: [main]"))
    assert main(["render", *FRAMEWORK, str(manifest)]) == 1
    error = capsys.readouterr().err
    assert f"{manifest}:9: spec.replicaSpecs.Chief.replicas: must be exactly 1, got 3" in error
    assert f"{manifest}:13: spec.replicaSpecs.Chief.template.spec.containers[0].name: " in error


def test_a_missing_field_is_reported_with_the_line_of_its_parent(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text("---\n" + MANIFEST.replace("              image: trainer:1\n", ""))
    assert main(["render", *FRAMEWORK, str(manifest)]) == 1
    assert f"{manifest}:14: spec.replicaSpecs.Chief.template.spec.containers[0].image: is missing" in capsys.readouterr().err


def test_an_unknown_field_is_reported(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(MANIFEST.replace("spec:\n", "spec:\n  runPolicy: {backofLimit: 3}\n", 1))
    assert main(["render", *FRAMEWORK, str(manifest)]) == 0
    captured = capsys.readouterr()
    line = 1 + next(number for number, text in enumerate(manifest.read_text().splitlines()) if "backofLimit" in text)
    assert captured.err.startswith(f"{manifest}:{line}: spec.runPolicy.backofLimit: unknown field")
    assert objects(captured.out)


def test_a_git_repository_that_no_image_clones_is_reported(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = "spec:\n  runPolicy: {codeSync: [{source: https://example.org/train.git, IMAGE}]}\n"
    for image, reported in (("image: git-sync:4", False), ("branch: main", True)):
        manifest.write_text(MANIFEST.replace("spec:\n", policy.replace("IMAGE", image), 1))
        assert main(["render", *FRAMEWORK, str(manifest)]) == 0
        captured = capsys.readouterr()
        assert ("spec.runPolicy.codeSync[0]: there is no image to clone https://example.org/train.git" in captured.err) is reported
        assert "name: git-sync-code" in captured.out


def test_errors_of_the_crd_schema_are_reported_with_file_line_and_path(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = "{spec: {containers: [{name: pytorch, image: trainer:1}]}}"
    roles = f"    Master: {{template: {template}}}\n    Worker: {{replicas: 0, template: {template}}}\n"
    head = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: 1st\nspec:\n  pytorchReplicaSpecs:\n"
    manifest.write_text(head + roles)
    assert main(["render", str(manifest)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{manifest}:4: metadata.name: Invalid value: " in captured.err
    assert f"{manifest}:8: spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1" in captured.err


PYTORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  generateName: train-
spec:
  nprocPerNode: 2
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: pytorch, image: trainer:1}]
"""


def test_a_number_in_place_of_a_string_must_be_quoted(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(PYTORCH)
    assert main(["render", str(manifest)]) == 1
    assert f"{manifest}:6: spec.nprocPerNode: must be a string; write '2'" in capsys.readouterr().err


def test_a_field_without_effect_is_reported_and_a_name_may_be_generated(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(PYTORCH.replace("nprocPerNode: 2", 'nprocPerNode: "2"'))
    assert main(["render", str(manifest)]) == 0
    captured = capsys.readouterr()
    path = "spec.pytorchReplicaSpecs.Worker.template.spec.restartPolicy"
    warning = f"{manifest}:11: {path}: Never has no effect; the restartPolicy of the role sets it to OnFailure"
    assert captured.err.splitlines() == [warning]
    assert [item["metadata"]["name"] for item in objects(captured.out)] == ["train-xxxxx-worker-0"] * 2


CRON = """\
apiVersion: apps.kubedl.io/v1alpha1
kind: Cron
metadata:
  name: nightly
spec:
  schedule: "30 2 * * *"
  template:
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    workload:
      spec:
        pytorchReplicaSpecs:
          Worker:
            replicas: 2
            template: {spec: {containers: [{name: pytorch, image: "trainer:1"}]}}
"""


def test_the_job_of_a_cron_is_rendered(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(CRON)
    assert main(["render", str(manifest)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [item["metadata"]["name"] for item in objects(captured.out)] == ["nightly-xxxxx-worker-0", "nightly-xxxxx-worker-1"] * 2


@pytest.mark.parametrize(
    ("old", "new", "code", "error"),
    [
        ("30 2", "61 2", 1, ":6: spec.schedule: has an invalid minute field, '61'"),
        ("kind: PyTorchJob", "kind: Nothing", 1, ":11: unknown kind kubeflow.org/v1 Nothing; known kinds: "),
        ("Worker:", "Boss:", 1, ":13: spec.pytorchReplicaSpecs.Boss: is not a role of this kind"),
        ("replicas: 2", "replicas: -1", 1, ":14: spec.pytorchReplicaSpecs.Worker.replicas: "),
        ("replicas: 2", "replica: 2", 0, ":14: spec.pytorchReplicaSpecs.Worker.replica: unknown field"),
        ("schedule:", "historyLimits: 3\n  schedule:", 0, ":6: spec.historyLimits: unknown field"),
        ("schedule:", "historyLimit: -1\n  schedule:", 1, ":6: spec.historyLimit: "),
    ],
)
def test_problems_of_a_cron_are_reported_with_file_and_line(
    manifest: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, code: int, error: str
) -> None:
    manifest.write_text(CRON.replace(old, new, 1))
    assert main(["render", str(manifest)]) == code
    assert f"{manifest}{error}" in capsys.readouterr().err


BAD_FILES = {
    "invalid YAML": ("a: [1\nb: 2\n", ":2: invalid YAML: "),
    "a tab": ("a:\n\tb: 1\n", ":2: invalid YAML: "),
    "an unknown kind": ("\n\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", ":3: unknown kind v1 Pod; known kinds: "),
    "not an object": ("- 1\n", ":1: a manifest must be an object"),
    "no name": (MANIFEST.replace("  name: first\n", ""), ":1: metadata.name: is required."),
    "an empty file": ("# only a comment\n", " is empty; it must contain a manifest."),
    "an invalid name": (MANIFEST.replace("name: first", "name: First_One"), ":1: metadata.name: must be at most 253 "),
    "a recursive alias": ("a: &a\n  b: *a\n", ":"),
}


@pytest.mark.parametrize(("text", "error"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_an_invalid_file_is_reported_with_its_line(text: str, error: str, manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(text)
    assert main(["render", *FRAMEWORK, str(manifest)]) == 1
    assert f"dlop render: {manifest}{error}" in capsys.readouterr().err


def test_a_missing_file_is_reported_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(tmp_path / "none.yaml")]) == 1
    assert capsys.readouterr().err == f"dlop render: {tmp_path / 'none.yaml'} cannot be read: No such file or directory.\n"


# --- a new framework -----------------------------------------------------------------------------------------------------


@pytest.mark.machine
def test_a_new_framework_passes_its_test_and_can_be_rendered(tmp_path: Path) -> None:
    assert main(["new-framework", "HoroscopeJob", "--group", "stars.example.com", "--out", str(tmp_path)]) == 0
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for words in (
        ["-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        ["-m", "dlop", "render", "--framework", "horoscopejob:HoroscopeJob", "job.yaml"],
    ):
        run = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=100, env=environment)
        assert run.returncode == 0, run.stdout + run.stderr
    assert [item["kind"] for item in objects(run.stdout)] == ["Service", "Service", "Pod", "Pod"]


def test_a_new_framework_does_not_overwrite_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text("mine")
    assert main(["new-framework", "RingJob", "--out", str(tmp_path)]) == 1
    assert "already contains job.yaml; nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize("name", ["ring", "Ring-Job", "None", "import", "Ring Job", "../Ring", "DLJob"])
def test_an_invalid_kind_is_rejected(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-framework", "--out", str(tmp_path), "--", name]) == 2
    assert capsys.readouterr().err.startswith("dlop new-framework: ")
    assert list(tmp_path.iterdir()) == []
