"""The recordings in `goldens/`: runs of jobs under Kubeflow's operator. See `goldens/README.md` for the format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dlop.frameworks.registry import load_registry
from dlop.job import DLJob
from dlop.kube.resources import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES
from dlop.kube.types import JsonObject

GOLDENS = Path(__file__).parent / "goldens"
OBJECTS = (CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES)
"""Types of recorded objects that every server serves."""


@dataclass(frozen=True, slots=True)
class Golden:
    """One recording."""

    name: str
    body: JsonObject

    @classmethod
    def read(cls, name: str) -> Self:
        return cls(name, json.loads((GOLDENS / f"{name}.json").read_text()))

    @property
    def manifest(self) -> JsonObject:
        manifest: JsonObject = self.body["manifest"]
        return manifest


def golden_names() -> Iterator[str]:
    """The names of all recordings."""
    return iter(sorted(path.stem for path in GOLDENS.glob("*.json")))


def framework_of(golden: Golden) -> type[DLJob]:
    """The framework class for the job of a recording.

    Raises:
        RegistryError: the kind is not registered.
    """
    return load_registry().get(golden.manifest["apiVersion"], golden.manifest["kind"])
