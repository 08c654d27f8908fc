"""Imports the configuration loaders of kubernetes-asyncio without its API models.

Any import from that package imports all 900 models: 36 MB and most of a second. The loaders do not need them. During the
import, two empty placeholder packages replace those that import the models. Afterwards all modules of the package are
removed from sys.modules, so that a later import of kubernetes-asyncio gets the complete package.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = "kubernetes_asyncio"


@dataclass(frozen=True, slots=True)
class ConfigLoaders:
    """The classes of kubernetes-asyncio that dlop uses."""

    Configuration: Any
    ConfigException: type[Exception]
    KubeConfigLoader: Any
    KubeConfigMerger: Any
    InClusterConfigLoader: Any


@functools.cache
def import_loaders() -> ConfigLoaders:
    with _placeholder_packages():
        kubeconfig = importlib.import_module(f"{_PACKAGE}.config.kube_config")
        in_cluster = importlib.import_module(f"{_PACKAGE}.config.incluster_config")
        return ConfigLoaders(
            Configuration=kubeconfig.Configuration,
            ConfigException=kubeconfig.ConfigException,
            KubeConfigLoader=kubeconfig.KubeConfigLoader,
            KubeConfigMerger=kubeconfig.KubeConfigMerger,
            InClusterConfigLoader=in_cluster.InClusterConfigLoader,
        )


@contextmanager
def _placeholder_packages() -> Iterator[None]:
    if _PACKAGE in sys.modules:  # the complete package is already imported
        yield
        return
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{_PACKAGE} is not installed", name=_PACKAGE)
    directory = Path(spec.submodule_search_locations[0])
    try:
        _add_placeholder(_PACKAGE, directory)
        client = _add_placeholder(f"{_PACKAGE}.client", directory / "client")
        client.Configuration = importlib.import_module(f"{_PACKAGE}.client.configuration").Configuration  # type: ignore[attr-defined]
        # The loaders refer to it, but use it only to create clients.
        client.ApiClient = None  # type: ignore[attr-defined]
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]


def _add_placeholder(name: str, directory: Path) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = [str(directory)]
    sys.modules[name] = package
    return package
