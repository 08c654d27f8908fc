"""The image fits the Deployment, and `hack/kind-up` says what is missing before it does anything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dlop.deploy.deployment import PROBES_PORT, DeployOptions, deployment
from dlop.operator.health import EndpointPath, sites
from dlop.operator.settings import Settings
from tests.hack.scripts import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
NEEDED = ("docker", "kind", "kubectl")


def test_the_image_runs_as_the_user_that_the_deployment_asks_for() -> None:
    pod = deployment(DeployOptions())["spec"]["template"]["spec"]
    numbers = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE) == [tuple(map(str, numbers))]


def test_the_image_serves_probes_where_the_deployment_looks() -> None:
    assert f"EXPOSE {PROBES_PORT}\n" in DOCKERFILE
    (site,) = sites(Settings(), in_cluster=True)
    assert (site.host, site.port, site.pages) == ("0.0.0.0", PROBES_PORT, frozenset(EndpointPath))


def test_everything_that_the_image_copies_is_sent_to_its_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for sources in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


def test_the_operator_in_the_cluster_is_told_what_the_deployment_was_made_for() -> None:
    """Its rights are those of the chosen kinds and namespaces: it must not ask for others."""
    chosen = DeployOptions(
        namespace="a", watched_namespaces=("a", "b"), frameworks=("ring:RingJob",), kinds=("RingJob", "mxjobs.example.org")
    )
    pod = deployment(chosen)["spec"]["template"]["spec"]
    settings = Settings.read({}, {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]})
    assert (settings.namespaces, settings.frameworks, settings.kinds) == (chosen.watched_namespaces, chosen.frameworks, chosen.kinds)


@pytest.mark.parametrize("missing", NEEDED)
def test_a_missing_program_is_named_in_one_sentence(missing: str, tmp_path: Path) -> None:
    for program in NEEDED:
        if program != missing:
            _stub(tmp_path / program, "exit 0")
    answer = _kind_up(tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"hack/kind-up: {missing} is needed and not there: ")
    assert len(answer.stderr.splitlines()) == 1


def test_a_docker_that_does_not_answer_is_told_in_one_sentence(tmp_path: Path) -> None:
    for program in NEEDED:
        _stub(tmp_path / program, "exit 1")
    answer = _kind_up(tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith("hack/kind-up: docker is there, but its daemon does not answer: ")


def _stub(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _kind_up(programs: Path) -> subprocess.CompletedProcess[str]:
    """Run it where no other programs are than these and what a script needs."""
    for program in ("bash", "dirname"):
        (programs / program).symlink_to(str(shutil.which(program)))
    words = [str(programs / "bash"), str(ROOT / "hack" / "kind-up")]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env={"PATH": str(programs)})
