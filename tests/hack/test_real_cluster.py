"""`RealCluster`: users, several API servers, start errors, and cleanup after the test process was killed."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import ClusterError, RealCluster

from tests.hack.scripts import ROOT

pytestmark = pytest.mark.selftest


def call(cluster: RealCluster, path: str, *, server: int = 0, user: str = "admin", body: object = None) -> int:
    headers = {"Authorization": f"Bearer {cluster.tokens[user]}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(cluster.url_of(server) + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=cluster.ca_path), timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_users_other_than_the_admin_have_a_token_but_no_permissions(real_cluster: RealCluster) -> None:
    assert call(real_cluster, "/api/v1/namespaces/default/pods") == 200
    assert call(real_cluster, "/api/v1/namespaces/default/pods", user="alice") == 403


def test_api_servers_share_their_objects_and_are_killed_and_restarted_independently() -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}}
    with RealCluster.started(api_servers=2) as cluster:
        assert call(cluster, "/api/v1/namespaces/default/configmaps", server=0, body=settings) == 201
        cluster.kill_api_server(0)
        assert not cluster.is_running("kube-apiserver-0")
        assert call(cluster, "/api/v1/namespaces/default/configmaps/shared", server=1) == 200
        assert call(cluster, "/api/v1/namespaces/default/configmaps/shared", server=cluster.add_api_server()) == 200
        cluster.restart_api_server(0)
        assert call(cluster, "/api/v1/namespaces/default/configmaps/shared", server=0) == 200
    assert not cluster.folder.exists()


def test_a_server_that_cannot_start_is_reported_with_its_log() -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)kube-apiserver-0 exited .*unknown flag: --no-such-flag"),
        RealCluster.started(extra_flags=["--no-such-flag"]),
    ):
        pass


def test_the_cluster_is_killed_when_the_process_that_started_it_is_killed() -> None:
    require_assets()
    code = (
        "import json, sys; from real_cluster import RealCluster\n"
        "with RealCluster.started() as cluster:\n"
        "    print(json.dumps([p.pid for p in cluster.programs.values()]), flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "hack" / "lib")}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    deadline = time.monotonic() + 20
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "the programs of a killed test run are still running"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False
