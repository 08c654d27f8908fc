"""What is asked of a session, and of the machine that it runs on.

This module is light: how pods can be kept apart here is found out while all the rest is still being loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dlop.embedded.kubelet.image_map import Image
from dlop.embedded.kubelet.runtime.detect import Choice, choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.jobs.manifest_files import Document

GPU = "nvidia.com/gpu"


class Network(StrEnum):
    """What network pods have."""

    AUTO = "auto"
    """One of their own where the machine allows it."""
    OWN = "own"
    HOST = "host"


class LocalError(Exception):
    """The machine does not allow what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the node is to look like. What is None is as the machine has it."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    """To pretend."""
    images: Sequence[Image] = ()
    namespaces: bool = True
    network: Network = Network.AUTO
    visible: Sequence[Path] = ()
    """What pods are to see though it lies below /tmp."""

    @property
    def extended(self) -> Mapping[str, int]:
        """Resources besides processors and memory."""
        return {GPU: self.gpus} if self.gpus else {}

    async def choose_runtime(self) -> Choice:
        """How pods are to be run.

        Raises:
            LaptopError: not as was asked for.
        """
        chosen = await choose(namespaces=self.namespaces, own_network=self.network is not Network.HOST, visible=self.visible)
        if self.network is Network.OWN and isinstance(chosen.runtime, PlainRuntime):
            raise LocalError(f"--network own: {chosen.reason}")
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is asked of a session."""

    documents: Sequence[Document] = ()
    """Without any job among them the cluster stays until it is told to end."""
    machine: Machine = Machine()
    folder: Path | None = None
    keep: bool = False
    logs: bool = False
    history: bool = False
    """Whether the outcome is to tell all that happened."""
    timeout_seconds: float | None = None
