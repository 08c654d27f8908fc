"""Everything that the start of a container needs, put together: its command line, variables, mounts and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlop.embedded.kubelet.api_access import NO_ACCESS
from dlop.embedded.kubelet.config_sources import Inputs
from dlop.embedded.kubelet.environment import ConfigurationProblem, DownwardValues, all_expanded, named_sources, variables
from dlop.embedded.kubelet.image_map import Image, command_line
from dlop.embedded.kubelet.runtime.base import Launch, Mount
from dlop.embedded.kubelet.volumes import mounts
from dlop.kube.quantity import rounded_up
from dlop.kube.types import JsonObject

__all__ = ["DownwardValues", "Prepared", "Preparing"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A container that is ready to be started."""

    launch: Launch
    message_file: Path
    """Where the container may say something about its end."""


class Preparing:
    """Prepares the containers of one pod."""

    def __init__(self, inputs: Inputs, *, folder: Path, logs: Path, environment: Mapping[str, str]) -> None:
        """`folder` is the pod's own; `environment` are variables that every container has."""
        self.volumes: Mapping[str, Path] = {}
        self.hostname = ""
        self.access = NO_ACCESS
        self._inputs = inputs
        self._folder = folder
        self._logs = logs
        self._environment = environment

    def log_folder(self, container: JsonObject) -> Path:
        """Where the logs of a container are."""
        return self._logs / str(container["name"])

    async def prepare(
        self, pod: JsonObject, container: JsonObject, *, image: Image, programs: Path | None, place: DownwardValues, run: int
    ) -> Prepared:
        """All that a run of the container needs.

        Raises:
            ConfigurationProblem: something that it refers to is not there.
            KubeError: the server could not be asked.
        """
        config_maps, secrets = named_sources(container)
        sources = await self._inputs.sources(pod["metadata"]["namespace"], config_maps=config_maps, secrets=secrets)
        wanted = variables(pod, container, place=place, sources=sources)
        known = {**self._base(programs), **image.environment, **self.access.variables, **wanted}
        message_file = self._message_file(container, run)
        if container.get("tty") or container.get("stdin"):
            known.setdefault("TERM", "xterm")
        launch = Launch(
            argv=self._argv(container, image, wanted),
            environment=known,
            working_folder=container.get("workingDir") or image.working_folder,
            mounts=(
                *(Mount(source, target, read_only=True) for target, source in image.files.items()),
                *self.access.mounts_of(container),
                *mounts(container, made=self.volumes, known=wanted),
                Mount(message_file, container.get("terminationMessagePath") or "/dev/termination-log"),
            ),
            memory_limit_bytes=_memory_limit(container),
        )
        return Prepared(launch, message_file)

    def _argv(self, container: JsonObject, image: Image, known: Mapping[str, str]) -> tuple[str, ...]:
        argv = all_expanded(command_line(container, image), known)
        if not argv or not argv[0]:
            raise ConfigurationProblem("no command specified")
        return argv

    def _base(self, programs: Path | None) -> dict[str, str]:
        base = {**self._environment, "HOSTNAME": self.hostname}
        if programs is not None:
            base["PATH"] = f"{programs}:{base.get('PATH', '')}"
            base["VIRTUAL_ENV"] = str(programs.parent)
        return base

    def _message_file(self, container: JsonObject, run: int) -> Path:
        folder = self._folder / "containers" / str(container["name"]) / str(run)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "termination-log"
        file.touch()
        file.chmod(0o666)
        return file


def _memory_limit(container: JsonObject) -> int | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else rounded_up(limit)
