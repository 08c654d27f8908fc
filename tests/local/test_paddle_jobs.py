"""PaddleJobs with real processes: their containers start with the addresses of all peers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frameworks.paddle_manifests import batch_job, batch_role, sample, training_example
from tests.local.local_jobs import write_manifests
from tests.local.local_process import run_local

# Stands for the program of the image that starts the program of the user.
_PADDLE_K8S = """#!/bin/sh
[ "$1" = start_pserver ] && exec sleep 1000
getent hosts "$PADDLE_CURRENT_IP" >/dev/null && echo "$1 $2: $PADDLE_TRAINER_ID of $PADDLE_TRAINERS with $PADDLE_PSERVER_IPS: $ENTRY"
"""
_IMAGES = """
images:
  - name: "example.org/fluid_job_train_test:*"
    files: {/usr/local/bin/paddle_k8s: paddle_k8s}
"""
# Stands for the programs of the image, and for etcd.
_SERVER = "#!/bin/sh\ntrap exit TERM; sleep 1000 & wait\n"
_TRAINING_PROGRAM = """
import os, socket
socket.getaddrinfo(os.environ["ETCD_IP"], None)
print(os.environ["PADDLE_TRAINER_ID"], "of", os.environ["TRAINERS"], "with", os.environ["MASTER_IP"])
"""
_FAULT_TOLERANT_IMAGES = """
images:
  - name: "m3ngyang/etcd:*"
    files: {/usr/local/bin/etcd: server}
  - name: "example.org/paddlejob-mock:*"
    files: {/usr/local/bin/paddle_k8s: server, /workspace/vgg16.py: vgg16.py}
"""


async def test_the_sample_of_the_early_operator_runs_with_a_program_that_reads_its_environment(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").write_text(_IMAGES)
    program = tmp_path / "paddle_k8s"
    program.write_text(_PADDLE_K8S)
    program.chmod(0o755)
    job = sample()
    job["metadata"]["namespace"] = "testspace"
    file = write_manifests(tmp_path, job)
    result = await run_local(file, "--logs", "--images", str(tmp_path / "images.yaml"), folder=tmp_path)
    assert result.code == 0, result.out + result.err
    servers, entrypoint = "paddlejob-pserver-0,paddlejob-pserver-1", "python /home/job-1/train.py"
    for index in range(2):
        assert f"trainer-{index} | start_trainer fluid: {index} of 2 with {servers}: {entrypoint}\n" in result.out


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_fault_tolerant_example_of_the_old_operator_runs_with_a_master_and_etcd(tmp_path: Path, version: str) -> None:
    (tmp_path / "images.yaml").write_text(_FAULT_TOLERANT_IMAGES)
    for name, script in (("server", _SERVER), ("vgg16.py", _TRAINING_PROGRAM)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    file = write_manifests(tmp_path, {**training_example(), "apiVersion": f"paddlepaddle.org/{version}"})
    words = ("--logs", "--cpus", "4", "--images", str(tmp_path / "images.yaml"))
    result = await run_local(file, *words, folder=tmp_path)
    assert result.code == 0, result.out + result.err
    assert "TrainingJob examplejob Succeeded" in result.out
    for index in range(2):
        assert re.search(rf"trainer-{index} +\| {index} of 2 with examplejob-master-0\n", result.out), result.out


async def test_without_services_containers_wait_for_the_addresses_of_all_pods(tmp_path: Path) -> None:
    script = "echo $POD_IP $PADDLE_PSERVERS_IP_PORT_LIST $PADDLE_TRAINERS"
    container = {"name": "paddle", "image": "none", "command": ["sh", "-c", script]}
    role = batch_role(2, containers=[container])
    file = write_manifests(tmp_path, batch_job(ps=role, worker=role, cleanPodPolicy="Never"))  # keeps the logs
    result = await run_local(file, "--logs", folder=tmp_path)
    assert result.code == 0, result.out + result.err
    lines = re.findall(r"^(ps|worker)-(\d) +\| (\S+) (\S+) (\S+)$", result.out, re.MULTILINE)
    own = {(role, int(index)): address for role, index, address, _, _ in lines}
    assert len(set(own.values())) == 4
    lists = {(servers, trainers) for _, _, _, servers, trainers in lines}
    assert len(lists) == 1
    servers, trainers = lists.pop()
    assert [address.rpartition(":")[0] for address in servers.split(",")] == [own["ps", 0], own["ps", 1]]
    assert trainers.split(",") == [own["worker", 0], own["worker", 1]]
