"""Builds the configuration of a container run: command line, environment, mounts and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlop.embedded.kubelet.api_access import NO_ACCESS
from dlop.embedded.kubelet.config_sources import ConfigReader
from dlop.embedded.kubelet.environment import ContainerConfigError, DownwardValues, build_environment, expand_all, referenced_sources
from dlop.embedded.kubelet.image_map import Image, command_line
from dlop.embedded.kubelet.runtime.base import LaunchRequest, Mount
from dlop.embedded.kubelet.runtime.program_paths import hidden_mounts, interpreter_paths
from dlop.embedded.kubelet.volumes import container_mounts
from dlop.kube.quantity import integer_value
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    launch: LaunchRequest
    message_file: Path
    """The container's termination log on the host."""


class ContainerConfigBuilder:
    """Builds the configurations of the containers of one pod. The public attributes are set during the pod's setup."""

    def __init__(self, config_reader: ConfigReader, *, pod_dir: Path, log_dir: Path, environment: Mapping[str, str]) -> None:
        """`environment` are variables that every container has."""
        self.volume_paths: Mapping[str, Path] = {}
        self.hostname = ""
        self.api_access = NO_ACCESS
        self._config_reader = config_reader
        self._pod_dir = pod_dir
        self._log_dir = log_dir
        self._environment = environment

    def log_dir(self, container: JsonObject) -> Path:
        return self._log_dir / str(container["name"])

    async def build(
        self, pod: JsonObject, container: JsonObject, *, image: Image, bin_dir: Path | None, downward: DownwardValues, run: int
    ) -> ContainerConfig:
        """The configuration of a run. `bin_dir` is that of the image's Python environment, if it has one.

        Raises:
            ContainerConfigError: a required reference is missing.
            KubeError: the server could not be reached.
        """
        config_maps, secrets = referenced_sources(container)
        sources = await self._config_reader.read(pod["metadata"]["namespace"], config_maps=config_maps, secrets=secrets)
        pod_environment = build_environment(pod, container, downward=downward, sources=sources)
        environment = {**self._base_environment(bin_dir), **image.environment, **self.api_access.environment, **pod_environment}
        message_file = self._create_message_file(container, run)
        if container.get("tty") or container.get("stdin"):
            environment.setdefault("TERM", "xterm")
        launch = LaunchRequest(
            argv=self._argv(container, image, pod_environment),
            environment=environment,
            working_dir=container.get("workingDir") or image.working_dir,
            mounts=(
                *_python_mounts(bin_dir),
                *(Mount(source, target, read_only=True) for target, source in image.files.items()),
                *self.api_access.mounts_of(container),
                *container_mounts(pod, container, volume_paths=self.volume_paths, environment=pod_environment),
                Mount(message_file, container.get("terminationMessagePath") or "/dev/termination-log"),
            ),
            memory_limit_bytes=_memory_limit(container),
        )
        return ContainerConfig(launch, message_file)

    def _argv(self, container: JsonObject, image: Image, environment: Mapping[str, str]) -> tuple[str, ...]:
        argv = expand_all(command_line(container, image), environment)
        if not argv or not argv[0]:
            raise ContainerConfigError("no command specified")
        return argv

    def _base_environment(self, bin_dir: Path | None) -> dict[str, str]:
        environment = {**self._environment, "HOSTNAME": self.hostname}
        if bin_dir is not None:
            environment["PATH"] = f"{bin_dir}:{environment.get('PATH', '')}"
            environment["VIRTUAL_ENV"] = str(bin_dir.parent)
        return environment

    def _create_message_file(self, container: JsonObject, run: int) -> Path:
        directory = self._pod_dir / "containers" / str(container["name"]) / str(run)
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "termination-log"
        file.touch()
        file.chmod(0o666)
        return file


def _python_mounts(bin_dir: Path | None) -> tuple[Mount, ...]:
    """The image's Python environment and the interpreter that it links to, which are often in the user's home."""
    if bin_dir is None:
        return ()
    return tuple(hidden_mounts(interpreter_paths(bin_dir / "python")))


def _memory_limit(container: JsonObject) -> int | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else integer_value(limit)
