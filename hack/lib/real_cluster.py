"""A real control plane on loopback: etcd, one or more kube-apiservers on it and, if asked for, kube-controller-manager.

For tests:

    with RealCluster.started(controllers=True) as cluster:
        cluster.url, cluster.token, cluster.ca_path, cluster.kubeconfig_path

A cluster lives in one folder: its keys, its data, its logs and `state.json`, which says what runs. Everything listens
on 127.0.0.1 on free ports. `started` leaves nothing behind, even if the test process is killed; `hack/cluster` keeps
clusters between commands and finds them again by their folder. Only the standard library is used.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import shutil
import socket
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

READY_WITHIN_SECONDS = 90.0

_LOOK_EVERY_SECONDS = 0.05
_LOG_TAIL_LINES = 20
# Below the ports that systems give to outgoing connections, so that nobody takes one between our choice and its use.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000


class ClusterError(Exception):
    """A control plane did not come up or did not answer; the message says which program, and how its log ends."""


@dataclass
class Program:
    """One program of the cluster: how it is started, and the process that it is now."""

    name: str
    command: list[str]
    port: int
    pid: int = 0


class RealCluster:
    """The programs of one cluster and the way to talk to them. API servers are counted from 0."""

    def __init__(self, folder: Path, *, programs: Sequence[Program] = (), group: int | None = None) -> None:
        self.folder = folder
        self.programs: dict[str, Program] = {program.name: program for program in programs}
        self._group = group
        # Every command line names a file in the folder; the slash tells the cluster `a` from the cluster `ab`.
        self._marker = f"{folder}/"
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    # --- a life ------------------------------------------------------------------------------------------------------

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
        """A cluster for the time of a `with` block. `extra_flags` go to every API server; `users` have a token and no rights.

        Nothing is built here: a test's time limit is not made for that.

        Raises:
            AssetsError: the programs are not there yet.
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
            watchdog.close()
            shutil.rmtree(folder, ignore_errors=True)

    def create(
        self, *, controllers: bool, api_servers: int = 1, extra_flags: Sequence[str] = (), users: tuple[str, ...] = ("alice", "bob")
    ) -> None:
        """Write the keys of a new cluster and start its programs; see `wait_until_ready`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        credentials.write_signing_key(self.folder / commands.SIGNING_KEY)
        credentials.write_tokens(self.folder / commands.TOKENS, users=users)
        write_client_certificate(
            self.folder / commands.KUBELET_CLIENT_CERTIFICATE, self.folder / commands.KUBELET_CLIENT_KEY, name="kube-apiserver"
        )
        assets = ensure_assets(_programs(controllers=controllers))
        port = free_port()
        self._add("etcd", port, commands.etcd(assets["etcd"], self.folder, port=port, peer_port=free_port()))
        for _ in range(api_servers):
            self._add_api_server(extra_flags)
        if controllers:
            self.add_controllers()

    def wait_until_ready(self, *, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Wait until every API server is ready, the namespaces of a new cluster exist, and the controllers work.

        Raises:
            ClusterError: a program ended, or time is up; with the tail of its log.
        """
        deadline = time.monotonic() + within_seconds
        for index in range(self.api_server_count):
            self._wait(f"kube-apiserver-{index}", "/readyz", server=index, deadline=deadline)
        self._wait("kube-apiserver-0", "/api/v1/namespaces/default", server=0, deadline=deadline)
        self.write_kubeconfig(self.kubeconfig_path)
        if "kube-controller-manager" in self.programs:
            # This account is made by a controller: when it is there, the controllers are at work.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait("kube-controller-manager", account, server=0, deadline=deadline)

    def stop(self) -> None:
        """End every program. What they wrote stays in the folder."""
        # Those who talk to etcd go first: without it they would wait and complain.
        for name in reversed(self.programs):
            self.kill(name)

    # --- how to reach it ---------------------------------------------------------------------------------------------

    @property
    def api_server_count(self) -> int:
        """How many API servers this cluster has, dead ones included."""
        return sum(name.startswith("kube-apiserver-") for name in self.programs)

    @property
    def url(self) -> str:
        """The address of the first API server."""
        return self.url_of(0)

    def url_of(self, index: int) -> str:
        """The address of one API server."""
        return f"https://127.0.0.1:{self.programs[f'kube-apiserver-{index}'].port}"

    @property
    def etcd_url(self) -> str:
        """The address of etcd."""
        return f"http://127.0.0.1:{self.programs['etcd'].port}"

    @property
    def tokens(self) -> Mapping[str, str]:
        """The bearer tokens by user: `admin` may do everything, the others nothing until a RoleBinding says so."""
        return credentials.read_tokens(self.folder / commands.TOKENS)

    @property
    def token(self) -> str:
        """The admin's bearer token."""
        return self.tokens[credentials.ADMIN]

    @property
    def ca_path(self) -> Path:
        """The certificate that every API server of this cluster is checked against."""
        return self.folder / commands.CERTIFICATES / "apiserver.crt"

    @property
    def kubelet_client_certificate(self) -> Path:
        """What every API server of this cluster shows to nodes, and the authority that it is from."""
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

    # --- more of it, less of it --------------------------------------------------------------------------------------

    def add_api_server(self, *, extra_flags: Sequence[str] = (), within_seconds: float = READY_WITHIN_SECONDS) -> int:
        """Start one more API server on the same etcd, wait until it is ready, and return its number."""
        index = self._add_api_server(extra_flags)
        self._wait(f"kube-apiserver-{index}", "/readyz", server=index, deadline=time.monotonic() + within_seconds)
        return index

    def add_controllers(self) -> None:
        """Start kube-controller-manager next to the first API server."""
        port = free_port()
        binary = ensure_assets(("kube-controller-manager",))["kube-controller-manager"]
        # Its kubeconfig needs the certificate that the API server makes when it starts.
        self._wait("kube-apiserver-0", "/readyz", server=0, deadline=time.monotonic() + READY_WITHIN_SECONDS)
        kubeconfig = self.write_kubeconfig(self.kubeconfig_path)
        self._add("kube-controller-manager", port, commands.controller_manager(binary, self.folder, kubeconfig, port=port))

    def kill_api_server(self, index: int) -> None:
        """End an API server as a crash does: kill -9, no goodbye to anybody."""
        self.kill(f"kube-apiserver-{index}")

    def restart_api_server(self, index: int, *, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Start a killed API server again, on its old port, and wait until it is ready."""
        self.restart(f"kube-apiserver-{index}")
        self._wait(f"kube-apiserver-{index}", "/readyz", server=index, deadline=time.monotonic() + within_seconds)

    def kill(self, name: str) -> None:
        """End one program (`etcd`, `kube-apiserver-0`, ...) as a crash does."""
        pid = self.programs[name].pid
        child = self._children.pop(pid, None)
        if child is None:
            processes.kill(pid, marker=self._marker)
        else:
            child.kill()
            child.wait()

    def restart(self, name: str) -> None:
        """Start one program again with the flags and the port that it had."""
        self.kill(name)
        self._start(self.programs[name])

    def is_running(self, name: str) -> bool:
        """Whether a program of this cluster is alive now."""
        pid = self.programs[name].pid
        child = self._children.get(pid)
        return processes.is_running(pid, marker=self._marker) if child is None else child.poll() is None

    def compact(self) -> None:
        """Make etcd forget its history up to now: older versions and list pages are answered with 410 by the API server."""
        everything = base64.b64encode(b"\0").decode()
        answer = self._etcd("/v3/kv/range", {"key": everything, "range_end": everything, "limit": 1, "keys_only": True})
        self._etcd("/v3/kv/compaction", {"revision": answer["header"]["revision"], "physical": True})

    # --- programs ----------------------------------------------------------------------------------------------------

    def _add_api_server(self, extra_flags: Sequence[str]) -> int:
        index = self.api_server_count
        port = free_port()
        binary = ensure_assets(("kube-apiserver",))["kube-apiserver"]
        if index > 0 and not self.kubeconfig_path.exists():
            # All servers share one certificate, which the first one makes.
            self._wait("kube-apiserver-0", "/readyz", server=0, deadline=time.monotonic() + READY_WITHIN_SECONDS)
        command = commands.api_server(binary, self.folder, etcd_url=self.etcd_url, port=port, extra_flags=extra_flags)
        self._add(f"kube-apiserver-{index}", port, command)
        return index

    def _add(self, name: str, port: int, command: list[str]) -> None:
        self.programs[name] = Program(name, command, port)
        self._start(self.programs[name])

    def _start(self, program: Program) -> None:
        child = processes.start(program.command, log_path=self._log(program.name), group=self._group)
        self._children[child.pid] = child
        program.pid = child.pid
        self.save()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    # --- waiting and asking ------------------------------------------------------------------------------------------

    def _wait(self, waited_for: str, path: str, *, server: int, deadline: float) -> None:
        while not self._answers(path, server=server):
            for name in ("etcd", f"kube-apiserver-{server}", waited_for):
                if not self.is_running(name):
                    raise ClusterError(f"{name} ended while {waited_for} was starting; its log ends with:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{waited_for} did not become ready in time; its log ends with:\n{self._tail(waited_for)}")
            time.sleep(_LOOK_EVERY_SECONDS)

    def _answers(self, path: str, *, server: int) -> bool:
        try:
            trust = ssl.create_default_context(cafile=self.ca_path)
            request = urllib.request.Request(self.url_of(server) + path, headers={"Authorization": f"Bearer {self.token}"})
            with _no_proxy(trust).open(request, timeout=5.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            # No certificate yet, no server yet, or one that says that it is not ready.
            return False

    def _etcd(self, path: str, body: Mapping[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(self.etcd_url + path, data=json.dumps(body).encode(), method="POST")
        try:
            with _no_proxy(None).open(request, timeout=10.0) as answer:
                decoded: dict[str, dict[str, str]] = json.load(answer)
                return decoded
        except urllib.error.HTTPError as error:
            raise ClusterError(f"etcd refused {path}: {error.read().decode(errors='replace')}") from error

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    # --- between commands --------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write down what runs, so that another process can find and end it."""
        content = json.dumps([asdict(program) for program in self.programs.values()], indent=2)
        credentials.write_secret(self.folder / "state.json", content)

    @classmethod
    def load(cls, folder: Path) -> RealCluster:
        """The cluster that was written down in a folder; without programs if none was."""
        try:
            rows = json.loads((folder / "state.json").read_text())
        except FileNotFoundError:
            rows = []
        return cls(folder, programs=[Program(**row) for row in rows])


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    for port in random.sample(range(_FIRST_PORT, _LAST_PORT), 200):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise ClusterError("no free port on 127.0.0.1")


def _programs(*, controllers: bool) -> tuple[str, ...]:
    return ("etcd", "kube-apiserver", "kube-controller-manager") if controllers else ("etcd", "kube-apiserver")


def _no_proxy(trust: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    return urllib.request.build_opener(*handlers)
