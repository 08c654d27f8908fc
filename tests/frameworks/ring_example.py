"""The framework of the example `04-custom-framework`, loaded from its file."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from dlop import DLJob
from tests.frameworks.example_manifests import EXAMPLES

RING_EXAMPLE = EXAMPLES / "04-custom-framework"


def _load_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ring_example", RING_EXAMPLE / "ring.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ring_example"] = module
    spec.loader.exec_module(module)
    return module


RingJob: type[DLJob] = _load_module().RingJob
