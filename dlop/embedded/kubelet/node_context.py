"""Dependencies and settings that all pods of a node share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dlop.embedded.kubelet.api_access import ApiAccess
from dlop.embedded.kubelet.config_sources import ConfigReader
from dlop.embedded.kubelet.crash_loop_backoff import BackoffPolicy
from dlop.embedded.kubelet.events import PodEventRecorder
from dlop.embedded.kubelet.hosts_sync import HostsSync
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.object_watch import ObjectWatcher
from dlop.embedded.kubelet.python_environments import PythonEnvironments
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Back-off and retry periods of a node. The defaults are those of the kubelet."""

    restarts: BackoffPolicy = BackoffPolicy()  # noqa: RUF009 - a constant
    images: BackoffPolicy = BackoffPolicy()  # noqa: RUF009 - a constant
    volumes: BackoffPolicy = BackoffPolicy(0.5, 122.0)  # noqa: RUF009 - a constant
    retry_seconds: float = 10.0
    """Delay before a retry after a container config error."""
    min_grace_seconds: float = 2.0
    """Lower bound of the time between SIGTERM and SIGKILL."""
    lease_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    client: Client
    runtime: Runtime
    clock: Callable[[], float]
    rng: Random
    events: PodEventRecorder
    config_reader: ConfigReader
    images: ImageMap
    environments: PythonEnvironments
    hosts: HostsSync
    object_watcher: ObjectWatcher
    root_dir: Path
    """Contains the volumes, logs and other files of all pods."""
    timings: Timings = field(default_factory=Timings)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that containers get as if their image set them."""
    api_access: ApiAccess | None = None
    """How pods reach the API server. None if they cannot."""
    keep_logs: bool = False
    """Whether the logs of a pod stay on disk after it is deleted."""
