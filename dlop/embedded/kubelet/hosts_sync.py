"""Keeps the names in all pods of the node up to date, as pods and services come and go.

A burst of changes is one round of writing. A pod that starts does not wait for that: it begins with all that is known.

Where pods have no hosts file, names are replaced by addresses when a process starts, and stay what they were then. So a
process that names a service without a pod is kept waiting for that pod, though not for ever.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from dlop.embedded.kubelet.hosts_file import NamedPod, NamedService, Names

_BURST_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 10.0


class Directory:
    """What names mean now."""

    def __init__(
        self,
        *,
        services: Callable[[], Iterable[NamedService]],
        pods: Callable[[], Iterable[NamedPod]],
        write: Callable[[], None],
    ) -> None:
        """`write` has every pod on the node written its names anew."""
        self._services = services
        self._pods = pods
        self._write = write
        self._names: Names | None = None
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Event] = []

    @property
    def names(self) -> Names:
        """All names."""
        if self._names is None:
            self._names = Names(self._services(), self._pods())
        return self._names

    def change(self) -> None:
        """A pod or service has come, gone or changed."""
        self._names = None
        self._changed.set()
        for waiting in self._waiting:
            waiting.set()

    async def run(self) -> None:
        """Write what has changed, until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_BURST_SECONDS)
            self._changed.clear()
            self._write()

    def addresses(self, namespace: str) -> Mapping[str, str]:
        """What names stand for, at any time that this is looked at."""
        return _Addresses(self, namespace)

    async def all_named(self, namespace: str, texts: Iterable[str]) -> None:
        """Wait until every service that is named in the texts has a pod. After a while, go on without."""
        words = {word for text in texts for word in re.findall(r"[\w.-]+", text)}
        changed = asyncio.Event()
        self._waiting.append(changed)
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                while words & self.names.nameless(namespace=namespace):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiting.remove(changed)


class _Addresses(Mapping[str, str]):
    """The names of the moment, as seen from a namespace."""

    def __init__(self, directory: Directory, namespace: str) -> None:
        self._directory = directory
        self._namespace = namespace

    def _now(self) -> Mapping[str, str]:
        return self._directory.names.addresses(namespace=self._namespace)

    def __getitem__(self, name: str) -> str:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
