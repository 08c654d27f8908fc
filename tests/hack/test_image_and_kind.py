"""The image matches the Deployment, and `hack/kind-up` reports missing programs before it creates anything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dlop.deploy.deployment import PROBES_PORT, DeployOptions, deployment
from dlop.operator.health import EndpointPath, list_endpoints
from dlop.operator.settings import Settings
from tests.hack.scripts import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
REQUIRED = ("docker", "kind", "kubectl")


def test_the_image_runs_as_the_user_of_the_deployment() -> None:
    pod = deployment(DeployOptions())["spec"]["template"]["spec"]
    numbers = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE) == [tuple(map(str, numbers))]


def test_the_image_exposes_the_port_of_the_probes() -> None:
    assert f"EXPOSE {PROBES_PORT}\n" in DOCKERFILE
    (endpoint,) = list_endpoints(Settings(), in_cluster=True)
    assert (endpoint.host, endpoint.port, endpoint.paths) == ("0.0.0.0", PROBES_PORT, frozenset(EndpointPath))


def test_all_files_that_the_image_copies_are_in_the_build_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for sources in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


def test_the_settings_of_the_operator_match_the_deploy_options() -> None:
    """The operator has permissions only for the selected kinds and namespaces."""
    options = DeployOptions(
        namespace="a", watched_namespaces=("a", "b"), frameworks=("ring:RingJob",), kinds=("RingJob", "mxjobs.example.org")
    )
    pod = deployment(options)["spec"]["template"]["spec"]
    settings = Settings.load({}, {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]})
    assert (settings.namespaces, settings.frameworks, settings.kinds) == (options.watched_namespaces, options.frameworks, options.kinds)


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_missing_program_is_reported_in_one_line(missing: str, tmp_path: Path) -> None:
    for program in REQUIRED:
        if program != missing:
            _stub(tmp_path / program, "exit 0")
    process = _kind_up(tmp_path)
    assert process.returncode == 1
    assert process.stderr.startswith(f"hack/kind-up: {missing} not found: ")
    assert len(process.stderr.splitlines()) == 1


def test_an_unreachable_docker_daemon_is_reported(tmp_path: Path) -> None:
    for program in REQUIRED:
        _stub(tmp_path / program, "exit 1")
    process = _kind_up(tmp_path)
    assert process.returncode == 1
    assert process.stderr.startswith("hack/kind-up: cannot connect to the Docker daemon: ")


def _stub(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _kind_up(programs: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with a PATH that contains only these programs and those of the script itself."""
    for program in ("bash", "dirname"):
        (programs / program).symlink_to(str(shutil.which(program)))
    command = [str(programs / "bash"), str(ROOT / "hack" / "kind-up")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": str(programs)})
