"""Linux system calls that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_UNBINDABLE = 1 << 17
MS_PRIVATE = 1 << 18
MS_RELATIME = 1 << 21
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(call: str, result: int) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{call}: {os.strerror(errno)}")


def unshare(flags: int) -> None:
    """Enter new namespaces. CLONE_NEWPID takes effect for children only."""
    _check("unshare", _libc.unshare(ctypes.c_int(flags)))


def setns(descriptor: int, kind: int) -> None:
    """Enter a namespace. CLONE_NEWPID takes effect for children only."""
    _check("setns", _libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)))


def mount(source: str, target: str, *, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Create, bind, move or remount a mount."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), _encode(kind), ctypes.c_ulong(flags), _encode(options))
    _check(f"mount {target}", result)


def unmount(target: str) -> None:
    """Detach a mount lazily, with everything below it."""
    _check(f"unmount {target}", _libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)))


def set_read_only(target: str) -> None:
    """Make a mount read-only, with everything below it. Requires Linux 5.12."""
    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd.
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    arguments = (ctypes.c_int(_AT_FDCWD), os.fsencode(target), ctypes.c_uint(_AT_RECURSIVE), ctypes.byref(attributes), size)
    _check(f"mount_setattr {target}", _libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *arguments))


def pivot_root(new_root: str, old_root: str) -> None:
    """Make `new_root` the root directory. The previous root is then at `old_root`, which must be below the new one."""
    _check("pivot_root", _libc.pivot_root(os.fsencode(new_root), os.fsencode(old_root)))


def set_parent_death_signal(signal_number: int) -> None:
    """Receive this signal when the parent exits."""
    _check("prctl", _libc.prctl(ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal_number), 0, 0, 0))


def set_child_subreaper() -> None:
    """Become the parent of descendants whose own parent exits."""
    _check("prctl", _libc.prctl(ctypes.c_int(_PR_SET_CHILD_SUBREAPER), ctypes.c_ulong(1), 0, 0, 0))


def drop_bounding_capability(capability: int) -> None:
    """Prevent this process and its children from getting a capability in an exec."""
    _check("prctl", _libc.prctl(ctypes.c_int(_PR_CAPBSET_DROP), ctypes.c_ulong(capability), 0, 0, 0))


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
