"""Capabilities of containers: those that a container has by default on a cluster.

A pod is root in the launcher's user namespace. Without CAP_SYS_ADMIN it cannot remove or change the mounts that hide and protect the
host's files. In a user namespace that the pod creates itself, the kernel locks these mounts.
"""

from __future__ import annotations

from contextlib import suppress

from .syscalls import drop_bounding_capability

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP
_KEPT = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
_CAPABILITIES = range(64)


def drop_capabilities() -> None:
    """Drop all other capabilities. Takes effect in the next exec."""
    # The kernel does not know the last ones.
    with suppress(OSError):
        for capability in _CAPABILITIES:
            if capability not in _KEPT:
                drop_bounding_capability(capability)
