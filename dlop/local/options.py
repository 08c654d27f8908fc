"""Options of a local session and its node.

This module imports little, so that the runtime detection starts while the rest is still being imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dlop.api.types import Options
from dlop.embedded.kubelet.image_map import Image
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.embedded.kubelet.runtime.detect import DetectedRuntime, detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.jobs.manifest_files import Document

GPU = "nvidia.com/gpu"


class NetworkMode(StrEnum):
    """The network of pods."""

    AUTO = "auto"
    """`OWN` if the machine supports it, otherwise `HOST`."""
    OWN = "own"
    HOST = "host"


class LocalError(Exception):
    """The session cannot run with these options on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Properties of the node. None means the value of the machine."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    """Simulated GPUs."""
    autoscaler: bool = False
    """Whether elastic jobs are scaled with the capacity of the node."""
    images: Sequence[Image] = ()
    namespaces: bool = True
    network: NetworkMode = NetworkMode.AUTO
    mounts: Sequence[Mount] = ()
    """Mounts of all pods, if the machine allows namespaces."""

    @property
    def extended_resources(self) -> Mapping[str, int]:
        return {GPU: self.gpus} if self.gpus else {}

    @property
    def operator_options(self) -> Options:
        """How the operator renders jobs: git repositories are cloned by the git of the machine, with its configuration."""
        return Options(autoscaler=self.autoscaler, git_sync_image="git-sync", git_sync_credentials=False)

    async def choose_runtime(self) -> DetectedRuntime:
        """Detect the best runtime of this machine.

        Raises:
            LocalError: the machine does not support the network mode.
        """
        detected = await detect_runtime(namespaces=self.namespaces, own_network=self.network is not NetworkMode.HOST, mounts=self.mounts)
        if self.network is NetworkMode.OWN and isinstance(detected.runtime, PlainRuntime):
            raise LocalError(f"--network own: {detected.description}")
        return detected


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a session."""

    documents: Sequence[Document] = ()
    """If there is no job among them, the cluster runs until it is stopped."""
    node: NodeOptions = NodeOptions()
    workdir: Path | None = None
    """None creates a temporary directory."""
    keep: bool = False
    logs: bool = False
    history: bool = False
    """Whether the result includes the history of the jobs."""
    timeout_seconds: float | None = None
