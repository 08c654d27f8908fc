"""A real control plane on loopback: etcd, one or more kube-apiservers and, optionally, kube-controller-manager.

For tests:

    with RealCluster.started(controllers=True) as cluster:
        cluster.url, cluster.token, cluster.ca_path, cluster.kubeconfig_path

A cluster has one directory with its keys, data, logs and `state.json`, the list of its programs. All programs listen on free
ports of 127.0.0.1. `started` stops all programs, even if the test process is killed. `hack/cluster` keeps clusters between
commands and finds them by their directory. This module uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cluster_credentials as credentials
import control_plane_commands as commands
import processes
from client_certificate import write_client_certificate
from kubernetes_build import ensure_assets, require_assets
from ports import NoFreePortError, ReservedPorts

READY_WITHIN_SECONDS = 90.0

_POLL_INTERVAL_SECONDS = 0.05
_LOG_TAIL_LINES = 20


class ClusterError(Exception):
    """A program did not start or respond; the message contains the end of its log."""


@dataclass
class Program:
    """One program of the cluster: its command line and current process."""

    name: str
    command: list[str]
    port: int
    pid: int = 0


class RealCluster:
    """The programs of one cluster, and the credentials to reach it. API servers are numbered from 0."""

    def __init__(self, folder: Path, *, programs: Sequence[Program] = (), group: int | None = None) -> None:
        self.folder = folder
        self.programs: dict[str, Program] = {program.name: program for program in programs}
        self._group = group
        # Every command line contains a path in the directory. The slash distinguishes the cluster `a` from the cluster `ab`.
        self._marker = f"{folder}/"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        # Reserved while this process uses the cluster. Afterwards the programs themselves occupy the ports.
        self._ports = ReservedPorts()

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    @classmethod
    @contextlib.contextmanager
    def started(
        cls,
        *,
        controllers: bool = False,
        api_servers: int = 1,
        extra_flags: Sequence[str] = (),
        users: tuple[str, ...] = ("alice", "bob"),
        ready_within_seconds: float = READY_WITHIN_SECONDS,
    ) -> Iterator[RealCluster]:
        """A cluster for the duration of a `with` block. `extra_flags` apply to every API server; `users` have a token but no permissions.

        Missing programs are not built, because a build takes longer than the timeout of a test.

        Raises:
            AssetsError: a program is missing.
            ClusterError: the cluster did not become ready in time.
        """
        require_assets(_programs(controllers=controllers))
        folder = Path(tempfile.mkdtemp(prefix="dlop-cluster-"))
        watchdog = processes.Watchdog()
        cluster = cls(folder, group=watchdog.group)
        try:
            cluster.create(controllers=controllers, api_servers=api_servers, extra_flags=extra_flags, users=users)
            cluster.wait_until_ready(within_seconds=ready_within_seconds)
            yield cluster
        finally:
            cluster.stop()
            cluster._ports.release()
            watchdog.close()
            shutil.rmtree(folder, ignore_errors=True)

    def create(
        self, *, controllers: bool, api_servers: int = 1, extra_flags: Sequence[str] = (), users: tuple[str, ...] = ("alice", "bob")
    ) -> None:
        """Write the keys of a new cluster and start its programs. Does not wait; see `wait_until_ready`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        credentials.write_signing_key(self.folder / commands.SIGNING_KEY)
        credentials.write_tokens(self.folder / commands.TOKENS, users=users)
        write_client_certificate(
            self.folder / commands.KUBELET_CLIENT_CERTIFICATE, self.folder / commands.KUBELET_CLIENT_KEY, name="kube-apiserver"
        )
        assets = ensure_assets(_programs(controllers=controllers))
        port = self._reserve_port()
        self._add("etcd", port, commands.etcd(assets["etcd"], self.folder, port=port, peer_port=self._reserve_port()))
        for _ in range(api_servers):
            self._add_api_server(extra_flags)
        if controllers:
            self.add_controllers()

    def wait_until_ready(self, *, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Wait until every API server is ready, the namespace `default` exists, and the controllers are running.

        Raises:
            ClusterError: a program exited, or the timeout expired.
        """
        deadline = time.monotonic() + within_seconds
        for index in range(self.api_server_count):
            self._wait(f"kube-apiserver-{index}", "/readyz", server=index, deadline=deadline)
        self._wait("kube-apiserver-0", "/api/v1/namespaces/default", server=0, deadline=deadline)
        self.write_kubeconfig(self.kubeconfig_path)
        if "kube-controller-manager" in self.programs:
            # A controller creates this account.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait("kube-controller-manager", account, server=0, deadline=deadline)

    def stop(self) -> None:
        """Kill all programs. Their files remain in the directory."""
        # Stop the clients of etcd first, because they would log errors without it.
        for name in reversed(self.programs):
            self.kill(name)

    # --- addresses and credentials -----------------------------------------------------------------------------------

    @property
    def api_server_count(self) -> int:
        """The number of API servers, including stopped ones."""
        return sum(name.startswith("kube-apiserver-") for name in self.programs)

    @property
    def url(self) -> str:
        return self.url_of(0)

    def url_of(self, index: int) -> str:
        return f"https://127.0.0.1:{self.programs[f'kube-apiserver-{index}'].port}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.programs['etcd'].port}"

    @property
    def tokens(self) -> Mapping[str, str]:
        """The bearer tokens by user. `admin` has all permissions, the others have none without a RoleBinding."""
        return credentials.read_tokens(self.folder / commands.TOKENS)

    @property
    def token(self) -> str:
        return self.tokens[credentials.ADMIN]

    @property
    def ca_path(self) -> Path:
        """The CA certificate of every API server of this cluster."""
        return self.folder / commands.CERTIFICATES / "apiserver.crt"

    @property
    def kubelet_client_certificate(self) -> Path:
        """The self-signed client certificate that every API server presents to nodes."""
        return self.folder / commands.KUBELET_CLIENT_CERTIFICATE

    @property
    def kubeconfig_path(self) -> Path:
        """The admin's kubeconfig for the first API server."""
        return self.folder / "kubeconfig"

    def write_kubeconfig(self, path: Path, *, user: str = credentials.ADMIN, server: int = 0) -> Path:
        """Write a kubeconfig for one user and one API server."""
        ca_pem = self.ca_path.read_bytes()
        credentials.write_kubeconfig(path, url=self.url_of(server), ca_pem=ca_pem, user=user, token=self.tokens[user])
        return path

    # --- starting and killing single programs ------------------------------------------------------------------------

    def add_api_server(self, *, extra_flags: Sequence[str] = (), within_seconds: float = READY_WITHIN_SECONDS) -> int:
        """Start another API server on the same etcd, wait until it is ready, and return its number."""
        index = self._add_api_server(extra_flags)
        self._wait(f"kube-apiserver-{index}", "/readyz", server=index, deadline=time.monotonic() + within_seconds)
        return index

    def add_controllers(self) -> None:
        """Start kube-controller-manager, connected to the first API server."""
        port = self._reserve_port()
        binary = ensure_assets(("kube-controller-manager",))["kube-controller-manager"]
        # The kubeconfig contains the certificate that the API server generates at its start.
        self._wait("kube-apiserver-0", "/readyz", server=0, deadline=time.monotonic() + READY_WITHIN_SECONDS)
        kubeconfig = self.write_kubeconfig(self.kubeconfig_path)
        self._add("kube-controller-manager", port, commands.controller_manager(binary, self.folder, kubeconfig, port=port))

    def kill_api_server(self, index: int) -> None:
        """Kill an API server with SIGKILL, as in a crash."""
        self.kill(f"kube-apiserver-{index}")

    def restart_api_server(self, index: int, *, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Restart an API server on the same port and wait until it is ready."""
        self.restart(f"kube-apiserver-{index}")
        self._wait(f"kube-apiserver-{index}", "/readyz", server=index, deadline=time.monotonic() + within_seconds)

    def kill(self, name: str) -> None:
        """Kill one program (`etcd`, `kube-apiserver-0`, ...) with SIGKILL."""
        pid = self.programs[name].pid
        child = self._children.pop(pid, None)
        if child is None:
            processes.kill(pid, marker=self._marker)
        else:
            child.kill()
            child.wait()

    def restart(self, name: str) -> None:
        """Restart one program with the same flags and port."""
        self.kill(name)
        self._start(self.programs[name])

    def is_running(self, name: str) -> bool:
        pid = self.programs[name].pid
        child = self._children.get(pid)
        return processes.is_running(pid, marker=self._marker) if child is None else child.poll() is None

    def compact(self) -> None:
        """Compact etcd at the current revision, so that the API server answers older resource versions and continue tokens with 410."""
        any_key = base64.b64encode(b"\0").decode()
        response = self._etcd("/v3/kv/range", {"key": any_key, "range_end": any_key, "limit": 1, "keys_only": True})
        self._etcd("/v3/kv/compaction", {"revision": response["header"]["revision"], "physical": True})

    # --- programs ----------------------------------------------------------------------------------------------------

    def _add_api_server(self, extra_flags: Sequence[str]) -> int:
        index = self.api_server_count
        port = self._reserve_port()
        binary = ensure_assets(("kube-apiserver",))["kube-apiserver"]
        if index > 0 and not self.kubeconfig_path.exists():
            # All servers share one certificate, which the first server generates.
            self._wait("kube-apiserver-0", "/readyz", server=0, deadline=time.monotonic() + READY_WITHIN_SECONDS)
        command = commands.api_server(binary, self.folder, etcd_url=self.etcd_url, port=port, extra_flags=extra_flags)
        self._add(f"kube-apiserver-{index}", port, command)
        return index

    def _add(self, name: str, port: int, command: list[str]) -> None:
        self.programs[name] = Program(name, command, port)
        self._start(self.programs[name])

    def _start(self, program: Program) -> None:
        child = processes.start(program.command, log_path=self._log_path(program.name), group=self._group)
        self._children[child.pid] = child
        program.pid = child.pid
        self.save()

    def _reserve_port(self) -> int:
        try:
            return self._ports.reserve()
        except NoFreePortError as error:
            raise ClusterError(str(error)) from error

    def _log_path(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    # --- requests ----------------------------------------------------------------------------------------------------

    def _wait(self, waited_for: str, path: str, *, server: int, deadline: float) -> None:
        while not self._responds(path, server=server):
            for name in ("etcd", f"kube-apiserver-{server}", waited_for):
                if not self.is_running(name):
                    raise ClusterError(f"{name} exited while {waited_for} was starting; its log ends with:\n{self._log_tail(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{waited_for} did not become ready in time; its log ends with:\n{self._log_tail(waited_for)}")
            time.sleep(_POLL_INTERVAL_SECONDS)

    def _responds(self, path: str, *, server: int) -> bool:
        try:
            tls = ssl.create_default_context(cafile=self.ca_path)
            request = urllib.request.Request(self.url_of(server) + path, headers={"Authorization": f"Bearer {self.token}"})
            with _opener(tls).open(request, timeout=5.0) as response:
                return bool(response.status == 200)
        except OSError:
            # The certificate does not exist yet, or the server does not listen or is not ready.
            return False

    def _etcd(self, path: str, body: Mapping[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(self.etcd_url + path, data=json.dumps(body).encode(), method="POST")
        try:
            with _opener(None).open(request, timeout=10.0) as response:
                decoded: dict[str, dict[str, str]] = json.load(response)
                return decoded
        except urllib.error.HTTPError as error:
            raise ClusterError(f"etcd rejected {path}: {error.read().decode(errors='replace')}") from error

    def _log_tail(self, name: str) -> str:
        lines = self._log_path(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    # --- persistence -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write `state.json`, so that another process can find and stop the programs."""
        content = json.dumps([asdict(program) for program in self.programs.values()], indent=2)
        credentials.write_secret(self.folder / "state.json", content)

    @classmethod
    def load(cls, folder: Path) -> RealCluster:
        """The cluster of a directory; without programs if the directory has no `state.json`."""
        try:
            rows = json.loads((folder / "state.json").read_text())
        except FileNotFoundError:
            rows = []
        return cls(folder, programs=[Program(**row) for row in rows])


def _programs(*, controllers: bool) -> tuple[str, ...]:
    return ("etcd", "kube-apiserver", "kube-controller-manager") if controllers else ("etcd", "kube-apiserver")


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """An opener that ignores proxy settings."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    return urllib.request.build_opener(*handlers)
