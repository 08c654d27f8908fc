"""The version of the real control plane, and tests that need a newer one than the oldest supported version."""

from __future__ import annotations

import pytest
from kubernetes_build import kubernetes_version

STREAMING_LISTS = "1.34"
"""Since this version, servers stream lists by default (the feature gate WatchList; 1.32 did it for one release)."""
POD_GENERATIONS = "1.33"
"""Since this version, pods have `metadata.generation`."""


def is_at_least(version: str) -> bool:
    """Whether the real control plane has this version, such as `1.33`, or a newer one."""
    return _numbers(kubernetes_version()) >= _numbers(version)


def since(version: str, *, reason: str) -> pytest.MarkDecorator:
    """The behaviour that a test describes exists since this version of Kubernetes. On older versions the test must fail."""
    if not reason:
        raise ValueError("since requires a reason")
    return pytest.mark.xfail(not is_at_least(version), reason=f"since Kubernetes {version}: {reason}", strict=True)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.removeprefix("v").split(".")[:2])


LIMITS_IN_BYTES = since("1.32", reason="errors of values that are too long name the limit in bytes")
JSON_VALUES = since("1.34", reason="error messages contain values as JSON")
