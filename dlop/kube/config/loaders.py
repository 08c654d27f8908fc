"""kubernetes-asyncio's readers of kubeconfigs and service accounts, without its nine hundred models of the API.

Whatever is imported of that package, the package itself comes first and brings all models along: 36 MB, and most of a
second. The readers need none of them. So while the readers are imported, two empty packages stand in for those that
bring the models, and nothing of it is left behind: whoever imports kubernetes-asyncio later finds it whole.
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
class Loaders:
    """The classes that are used of it."""

    Configuration: Any
    ConfigException: type[Exception]
    KubeConfigLoader: Any
    KubeConfigMerger: Any
    InClusterConfigLoader: Any


@functools.cache
def loaders() -> Loaders:
    """Import them, once."""
    with _stand_ins():
        files = importlib.import_module(f"{_PACKAGE}.config.kube_config")
        accounts = importlib.import_module(f"{_PACKAGE}.config.incluster_config")
        return Loaders(
            Configuration=files.Configuration,
            ConfigException=files.ConfigException,
            KubeConfigLoader=files.KubeConfigLoader,
            KubeConfigMerger=files.KubeConfigMerger,
            InClusterConfigLoader=accounts.InClusterConfigLoader,
        )


@contextmanager
def _stand_ins() -> Iterator[None]:
    if _PACKAGE in sys.modules:  # somebody has paid for it already
        yield
        return
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{_PACKAGE} is not installed", name=_PACKAGE)
    folder = Path(found.submodule_search_locations[0])
    try:
        _stand_in(_PACKAGE, folder)
        client = _stand_in(f"{_PACKAGE}.client", folder / "client")
        client.Configuration = importlib.import_module(f"{_PACKAGE}.client.configuration").Configuration  # type: ignore[attr-defined]
        # The readers name it, and use it only to make clients.
        client.ApiClient = None  # type: ignore[attr-defined]
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]


def _stand_in(name: str, folder: Path) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    return package
