"""Keeps the hosts files of all pods on the node current.

A burst of changes is written once. A pod that starts does not wait for that; it gets the current names immediately.

Without a hosts file, names are replaced by addresses when a process starts and do not change afterwards. Therefore a process that
refers to a service without a pod waits for that pod, up to a limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from dlop.embedded.kubelet.hosts_file import HostsTable, PodEntry, ServiceEntry

_BURST_SECONDS = 0.05
_MAX_WAIT_SECONDS = 10.0


class HostsSync:
    def __init__(
        self,
        *,
        services: Callable[[], Iterable[ServiceEntry]],
        pods: Callable[[], Iterable[PodEntry]],
        write: Callable[[], None],
    ) -> None:
        """`write` rewrites the hosts files of all pods on the node."""
        self._services = services
        self._pods = pods
        self._write = write
        self._table: HostsTable | None = None
        self._changed = asyncio.Event()
        self._waiters: list[asyncio.Event] = []

    @property
    def table(self) -> HostsTable:
        if self._table is None:
            self._table = HostsTable(self._services(), self._pods())
        return self._table

    def invalidate(self) -> None:
        """To be called when a pod or service was added, changed or deleted."""
        self._table = None
        self._changed.set()
        for waiter in self._waiters:
            waiter.set()

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_BURST_SECONDS)
            self._changed.clear()
            self._write()

    def addresses(self, namespace: str) -> Mapping[str, str]:
        """A live view of the addresses by name, as seen from a namespace."""
        return _Addresses(self, namespace)

    async def wait_resolvable(self, namespace: str, texts: Iterable[str]) -> None:
        """Wait until every service that the texts refer to has a pod. Returns after a limit in any case."""
        words = {word for text in texts for word in re.findall(r"[\w.-]+", text)}
        changed = asyncio.Event()
        self._waiters.append(changed)
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                while words & self.table.unresolved(namespace=namespace):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiters.remove(changed)


class _Addresses(Mapping[str, str]):
    def __init__(self, sync: HostsSync, namespace: str) -> None:
        self._sync = sync
        self._namespace = namespace

    def _current(self) -> Mapping[str, str]:
        return self._sync.table.addresses(namespace=self._namespace)

    def __getitem__(self, name: str) -> str:
        return self._current()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())
