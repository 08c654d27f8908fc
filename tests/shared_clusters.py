"""Real control planes that are shared by all tests of a run, also by those in other processes.

The main process of the run owns them. It starts one when a test requests it for the first time, and stops all of them at the end of
the run. The workers of pytest-xdist request them over a Unix socket and read the credentials from the directory of the control
plane. If the main process is killed, its control planes are killed too.

Requests with equal specs get the same control plane. Therefore use a separate namespace, and do not change cluster-scoped objects
that other tests use.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Protocol

from kubernetes_build import AssetsError
from real_cluster import ClusterError, RealCluster

_SOCKET = "socket"


@dataclass(frozen=True)
class ClusterSpec:
    """The flags of a control plane. The name distinguishes control planes with the same flags."""

    name: str = "shared"
    controllers: bool = True
    extra_flags: tuple[str, ...] = ()


class Clusters(Protocol):
    """The control planes of a run."""

    def get(self, spec: ClusterSpec) -> RealCluster:
        """Return the control plane with this spec. Start it on the first request.

        Raises:
            AssetsError: the programs are missing.
            ClusterError: the control plane did not become ready in time.
        """


class LocalClusters:
    """The control planes that this process owns."""

    def __init__(self) -> None:
        self._started = contextlib.ExitStack()
        self._clusters: dict[ClusterSpec, RealCluster | Exception] = {}
        self._locks: defaultdict[ClusterSpec, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()
        self._is_closed = False

    def get(self, spec: ClusterSpec) -> RealCluster:
        """See `Clusters`. A failed start is not retried."""
        with self._lock:
            lock = self._locks[spec]
        with lock:
            if spec not in self._clusters:
                self._clusters[spec] = self._start(spec)
            cluster = self._clusters[spec]
        if isinstance(cluster, Exception):
            raise cluster
        return cluster

    def _start(self, spec: ClusterSpec) -> RealCluster | Exception:
        started = contextlib.ExitStack()
        try:
            cluster = started.enter_context(RealCluster.started(controllers=spec.controllers, extra_flags=spec.extra_flags))
        except (AssetsError, ClusterError) as error:
            return error
        with self._lock:
            if not self._is_closed:
                self._started.push(started)
                return cluster
        started.close()
        return ClusterError("the test run has ended")

    def close(self) -> None:
        """Stop all control planes."""
        with self._lock:
            self._is_closed = True
        self._started.close()


class RemoteClusters:
    """The control planes of the main process, for a worker."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._clusters: dict[ClusterSpec, RealCluster] = {}

    def get(self, spec: ClusterSpec) -> RealCluster:
        """See `Clusters`."""
        if spec not in self._clusters:
            with connection.Client(self._address, family="AF_UNIX") as server:
                server.send(spec)
                response = server.recv()
            if isinstance(response, Exception):
                raise response
            self._clusters[spec] = RealCluster.load(response)
        return self._clusters[spec]


@contextlib.contextmanager
def serve_clusters(clusters: Clusters) -> Iterator[str]:
    """Serve requests of other processes. Yields the address of the Unix socket."""
    # Not in pytest's temporary directory, because the path of a Unix socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="dlop-"))
    listener = connection.Listener(str(folder / _SOCKET), family="AF_UNIX")
    threading.Thread(target=_accept, args=(listener, clusters), daemon=True).start()
    try:
        yield str(folder / _SOCKET)
    finally:
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)


def _accept(listener: connection.Listener, clusters: Clusters) -> None:
    with contextlib.suppress(OSError):  # the listener was closed
        while True:
            threading.Thread(target=_respond, args=(listener.accept(), clusters), daemon=True).start()


def _respond(peer: connection.Connection, clusters: Clusters) -> None:
    # The worker may have exited before the response is sent.
    with peer, contextlib.suppress(OSError, EOFError):
        try:
            response: object = clusters.get(peer.recv()).folder
        except (AssetsError, ClusterError) as error:
            response = error
        peer.send(response)
