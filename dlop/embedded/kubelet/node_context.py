"""What every pod of a node uses: the node's own clock, pace, images, events and surroundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dlop.embedded.kubelet.api_access import ApiAccess
from dlop.embedded.kubelet.config_sources import Inputs
from dlop.embedded.kubelet.events import Events
from dlop.embedded.kubelet.hosts_sync import Directory
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.object_watch import Watchers
from dlop.embedded.kubelet.python_environments import PythonEnvironments
from dlop.embedded.kubelet.restart_backoff import RestartPace
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How patient a node is. The numbers are the kubelet's."""

    restarts: RestartPace = RestartPace()  # noqa: RUF009 - a constant
    images: RestartPace = RestartPace()  # noqa: RUF009 - a constant
    volumes: RestartPace = RestartPace(0.5, 122.0)  # noqa: RUF009 - a constant
    retry_seconds: float = 10.0
    """Before a container whose variables cannot be made is looked at again."""
    shortest_grace_seconds: float = 2.0
    """However short a grace period: enough to end in an orderly way."""
    lease_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """Handed to every pod."""

    client: Client
    runtime: Runtime
    clock: Callable[[], float]
    rng: Random
    events: Events
    inputs: Inputs
    images: ImageMap
    environments: PythonEnvironments
    directory: Directory
    watchers: Watchers
    folder: Path
    """Where everything of the node's pods lives."""
    pace: Timings = field(default_factory=Timings)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that every container has, as from an image."""
    access: ApiAccess | None = None
    """How pods reach the API server; None: they do not."""
    keep_logs: bool = False
    """Whether the logs of a pod stay on disk when it is gone."""
