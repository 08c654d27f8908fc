"""Pods in namespaces.

The containers of a pod share network, UTS and IPC namespaces and /dev/shm. Each container has a mount namespace and is the init
process of a PID namespace.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import forked_task, ipc, rlimits
from .capabilities import drop_capabilities
from .cgroups import Cgroup, CgroupParent
from .netns_worker import NetnsWorker
from .network import connect
from .private_files import PrivateFiles
from .process_spec import BindMount, JoinTarget, ProcessSpec
from .rootfs import enter_new_root, protect_proc
from .syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUTS, setns, unshare

_CONNECT_SECONDS = 10.0


@dataclass(slots=True)
class PodNamespaces:
    """The namespaces that the containers of a pod share, as open files. `net` is None for the host's network."""

    net: int | None
    uts: int
    ipc: int
    shared_memory: str
    """The directory that the containers see as /dev/shm."""

    def enter(self) -> None:
        if self.net is not None:
            setns(self.net, CLONE_NEWNET)
        setns(self.uts, CLONE_NEWUTS)
        setns(self.ipc, CLONE_NEWIPC)

    def close(self) -> None:
        for fd in (self.net, self.uts, self.ipc):
            if fd is not None:
                os.close(fd)


@dataclass(frozen=True, slots=True)
class NamespacedProcess:
    """A child of the launcher. `cgroup` is None without cgroups and for a process that joined a container."""

    task: forked_task.ForkedTask
    cgroup: Cgroup | None

    def signal(self, number: int) -> None:
        """Send a signal. The PID cannot have been reused, because the child has not been reaped yet."""
        os.kill(self.task.pid, number)

    def exit_report(self, status: int) -> dict[str, Any]:
        if self.cgroup is None:
            return {"status": status}
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        out_of_memory = killed and self.cgroup.ran_out_of_memory()
        self.cgroup.remove()
        return {"status": status, "out_of_memory": out_of_memory}


class NamespacedHost:
    """Creates pods in namespaces. Pods see empty directories in place of `hidden_dirs`."""

    def __init__(
        self,
        private_files: PrivateFiles,
        *,
        hidden_dirs: list[str],
        netns_worker: NetnsWorker,
        max_processes: int,
        cgroup_parent: CgroupParent | None,
    ) -> None:
        self._private_files = private_files
        self._hidden_dirs = hidden_dirs
        self.netns_worker = netns_worker
        self._max_processes = max_processes
        self._cgroup_parent = cgroup_parent
        self._pods: dict[int, PodNamespaces] = {}
        self._last_cgroup = 0
        # Used to return after a child was started in another PID namespace.
        self._own_pid_namespace = _open_namespace("self", "pid")

    def create_sandbox(self, sandbox: int, body: dict[str, Any]) -> bool:
        """Request the namespaces of a pod. They are added by `add_namespaces`."""
        self.netns_worker.request_namespaces(sandbox, body)
        return False

    def add_namespaces(self, sandbox: int, fds: list[int]) -> None:
        *net, uts, ipc_namespace = fds
        shared_memory = os.path.join(self._private_files.shared_memory, str(sandbox))
        os.mkdir(shared_memory)
        os.chmod(shared_memory, 0o1777)  # noqa: S103 - the usual mode of /dev/shm
        self._pods[sandbox] = PodNamespaces(net[0] if net else None, uts, ipc_namespace, shared_memory)

    def start(self, sandbox: int, spec: ProcessSpec) -> NamespacedProcess:
        """Start a container, or a process that joins one."""
        namespaces = self._pods[sandbox]
        if spec.join is not None:
            return NamespacedProcess(self._start_joined(spec, namespaces, spec.join), None)
        cgroup = self._create_cgroup(spec)
        return NamespacedProcess(self._start_container(spec, namespaces, cgroup), cgroup)

    def connect(self, sandbox: int, body: dict[str, Any]) -> forked_task.ForkedTask:
        """Connect from inside the pod's network namespace."""
        netns = self._pods[sandbox].net

        def work(_: socket.socket) -> forked_task.TaskResult:
            connection = connect(netns, addresses=body["addresses"], port=body["port"], timeout_seconds=_CONNECT_SECONDS)
            return {}, [connection.detach()]

        return forked_task.fork_task(work)

    def close(self, sandbox: int) -> None:
        """Release a pod's namespaces. Its processes must have exited."""
        namespaces = self._pods.pop(sandbox)
        namespaces.close()
        with suppress(OSError):
            _remove_tree(namespaces.shared_memory)

    def _create_cgroup(self, spec: ProcessSpec) -> Cgroup | None:
        if self._cgroup_parent is None:
            return None
        self._last_cgroup += 1
        cgroup = self._cgroup_parent.create(str(self._last_cgroup))
        cgroup.limit(memory_bytes=spec.memory_bytes, max_processes=self._max_processes)
        return cgroup

    def _start_container(self, spec: ProcessSpec, namespaces: PodNamespaces, cgroup: Cgroup | None) -> forked_task.ForkedTask:
        def work(connection: socket.socket) -> forked_task.TaskResult:
            _send_pid(connection, cgroup)
            namespaces.enter()
            working_dir = spec.working_dir or "/"
            unshare(CLONE_NEWNS)
            self._private_files.exclude_from_mounts()
            shared_memory = BindMount(namespaces.shared_memory, "/dev/shm")  # noqa: S108 - private to the pod
            memory_source = os.open(shared_memory.source, os.O_PATH | os.O_CLOEXEC)
            mounts = [(shared_memory, memory_source), *self._private_files.open_sources(spec.mounts)]
            enter_new_root(self._private_files.root, hidden_dirs=self._hidden_dirs, mounts=mounts, directories=[working_dir])
            self._set_limits(spec, cgroup)
            protect_proc()
            drop_capabilities()
            spec.exec(working_dir)

        unshare(CLONE_NEWPID)
        return self._fork_and_return(work)

    def _start_joined(self, spec: ProcessSpec, namespaces: PodNamespaces, target: JoinTarget) -> forked_task.ForkedTask:
        cgroup = None if target.cgroup is None else Cgroup(target.cgroup)
        mount_namespace, pid_namespace = _open_namespace(target.pid, "mnt"), _open_namespace(target.pid, "pid")

        def work(connection: socket.socket) -> forked_task.TaskResult:
            _send_pid(connection, cgroup)
            namespaces.enter()
            setns(mount_namespace, CLONE_NEWNS)
            self._set_limits(spec, cgroup)
            drop_capabilities()
            spec.exec(spec.working_dir or "/")

        try:
            setns(pid_namespace, CLONE_NEWPID)
            return self._fork_and_return(work)
        finally:
            os.close(mount_namespace)
            os.close(pid_namespace)

    def _set_limits(self, spec: ProcessSpec, cgroup: Cgroup | None) -> None:
        rlimits.reset_child_limits()
        rlimits.limit_pid_namespace(self._max_processes)
        if spec.memory_bytes is not None and cgroup is None:
            rlimits.limit_memory(spec.memory_bytes)

    def _fork_and_return(self, work: Callable[[socket.socket], forked_task.TaskResult]) -> forked_task.ForkedTask:
        """Fork, and let later children start in the launcher's own PID namespace again."""
        try:
            return forked_task.fork_task(work)
        finally:
            setns(self._own_pid_namespace, CLONE_NEWPID)


def _open_namespace(process: int | str, kind: str) -> int:
    return os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _send_pid(connection: socket.socket, cgroup: Cgroup | None) -> None:
    # /proc is still the host's, so the link has the PID on the host.
    ipc.send(connection, {"pid": int(os.readlink("/proc/self")), "cgroup": cgroup.path if cgroup else None})
    if cgroup is not None:
        cgroup.join()


def _remove_tree(directory: str) -> None:
    # shutil is not imported here, because it loads the modules of every archive format.
    for path, directories, files in os.walk(directory, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in directories:
            os.rmdir(os.path.join(path, name))
    os.rmdir(directory)
