"""Pods in namespaces.

A pod has a network, a host name, message queues and shared memory; each of its containers has files of its own, and is the first
process of a process table of its own.
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
from .cgroups import Group, Groups
from .netns_worker import Maker
from .network import connect
from .process_spec import Binding, Neighbour, Order
from .rootfs import enter_new_root
from .syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUTS, setns, unshare

_CONNECT_SECONDS = 10.0


@dataclass(slots=True)
class Spaces:
    """The namespaces that the containers of a pod share, as open files. Without a network it is the host's."""

    network: int | None
    hostname: int
    queues: int
    shared_memory: str

    def enter(self) -> None:
        """Join them."""
        if self.network is not None:
            setns(self.network, CLONE_NEWNET)
        setns(self.hostname, CLONE_NEWUTS)
        setns(self.queues, CLONE_NEWIPC)

    def close(self) -> None:
        """Let go of them."""
        for file in (self.network, self.hostname, self.queues):
            if file is not None:
                os.close(file)


@dataclass(frozen=True, slots=True)
class Container:
    """A process that is our own child, and the first of its group if it has one."""

    job: forked_task.Job
    group: Group | None

    def signal(self, number: int) -> None:
        """Send it a signal. It cannot be another process by now: we have not reaped it."""
        os.kill(self.job.pid, number)

    def ended(self, status: int) -> dict[str, Any]:
        """How it ended."""
        if self.group is None:
            return {"status": status}
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        out_of_memory = killed and self.group.ran_out_of_memory()
        self.group.remove()
        return {"status": status, "out_of_memory": out_of_memory}


class IsolatedHost:
    """Makes pods in namespaces. `folder` is a private one."""

    def __init__(self, folder: str, *, maker: Maker, most_processes: int, groups: Groups | None) -> None:
        self._folder = folder
        self.maker = maker
        self._most_processes = most_processes
        self._groups = groups
        self._root = os.path.join(folder, "root")
        os.mkdir(self._root)
        self._pods: dict[int, Spaces] = {}
        self._last_group = 0
        # The way back for us after a child was started elsewhere.
        self._own_processes = _space("self", "pid")

    def sandbox(self, number: int, body: dict[str, Any]) -> bool:
        """Have the namespaces of a pod made."""
        self.maker.order(number, body)
        return False

    def sandbox_made(self, number: int, files: list[int]) -> None:
        """Keep the namespaces that were made."""
        *own_network, hostname, queues = files
        shared_memory = os.path.join(self._folder, f"memory-{number}")
        os.mkdir(shared_memory)
        os.chmod(shared_memory, 0o1777)  # noqa: S103 - as /dev/shm is everywhere
        self._pods[number] = Spaces(own_network[0] if own_network else None, hostname, queues, shared_memory)

    def start(self, sandbox: int, order: Order) -> Container:
        """Start a container, or a process beside one."""
        spaces = self._pods[sandbox]
        if order.beside is not None:
            return Container(self._start_beside(order, spaces, order.beside), None)
        group = self._group(order)
        return Container(self._start_first(order, spaces, group), group)

    def connect(self, sandbox: int, body: dict[str, Any]) -> forked_task.Job:
        """Make a connection from inside the pod's network."""
        own_network = self._pods[sandbox].network

        def work(_: socket.socket) -> forked_task.Answer:
            connection = connect(own_network, addresses=body["addresses"], port=body["port"], timeout_seconds=_CONNECT_SECONDS)
            return {}, [connection.detach()]

        return forked_task.start(work)

    def close(self, sandbox: int) -> None:
        """Let go of a pod's namespaces; its processes have ended."""
        spaces = self._pods.pop(sandbox)
        spaces.close()
        with suppress(OSError):
            _remove(spaces.shared_memory)

    def _group(self, order: Order) -> Group | None:
        if self._groups is None:
            return None
        self._last_group += 1
        group = self._groups.make(str(self._last_group))
        group.limit(memory_bytes=order.memory_bytes, most_processes=self._most_processes)
        return group

    def _start_first(self, order: Order, spaces: Spaces, group: Group | None) -> forked_task.Job:
        def work(connection: socket.socket) -> forked_task.Answer:
            _introduce(connection, group)
            spaces.enter()
            folder = order.folder or "/"
            memory = Binding(spaces.shared_memory, "/dev/shm", optional=True)  # noqa: S108 - a private one
            enter_new_root(self._root, bindings=[memory, *order.bindings], folders=[folder])
            self._limit(order, group)
            order.carry_out(folder)

        unshare(CLONE_NEWPID)
        return self._start_elsewhere(work)

    def _start_beside(self, order: Order, spaces: Spaces, container: Neighbour) -> forked_task.Job:
        group = None if container.group is None else Group(container.group)
        files, processes = _space(container.pid, "mnt"), _space(container.pid, "pid")

        def work(connection: socket.socket) -> forked_task.Answer:
            _introduce(connection, group)
            spaces.enter()
            setns(files, CLONE_NEWNS)
            self._limit(order, group)
            order.carry_out(order.folder or "/")

        try:
            setns(processes, CLONE_NEWPID)
            return self._start_elsewhere(work)
        finally:
            os.close(files)
            os.close(processes)

    def _limit(self, order: Order, group: Group | None) -> None:
        rlimits.be_usual()
        rlimits.limit_own_table(self._most_processes)
        if order.memory_bytes is not None and group is None:
            rlimits.limit_memory(order.memory_bytes)

    def _start_elsewhere(self, work: Callable[[socket.socket], forked_task.Answer]) -> forked_task.Job:
        try:
            return forked_task.start(work)
        finally:
            setns(self._own_processes, CLONE_NEWPID)


def _space(process: int | str, kind: str) -> int:
    return os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _introduce(connection: socket.socket, group: Group | None) -> None:
    # /proc is still the host's, so it tells the number there.
    ipc.send(connection, {"pid": int(os.readlink("/proc/self")), "group": group.path if group else None})
    if group is not None:
        group.join()


def _remove(folder: str) -> None:
    # Not by the module for it, which brings every kind of archive with it.
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in folders:
            os.rmdir(os.path.join(path, name))
    os.rmdir(folder)
