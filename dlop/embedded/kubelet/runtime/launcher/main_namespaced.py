"""Where a launcher for pods in namespaces begins."""

from __future__ import annotations

import contextlib
import os
import socket

from . import ipc, rlimits
from .cgroups import Groups, find_groups
from .namespaced_host import IsolatedHost
from .netns_worker import Maker
from .server import Server
from .user_namespace import PrivateFolder, continue_as_first_process, enter_user_namespace, why_not


def main(control: int, gateway: str | None, prefix_length: int, most_processes: int) -> None:
    """Work for the one at the other end of this socket. The first message there says that we are ready, or why we cannot be.

    Without a gateway pods have no network of their own.
    """
    connection = socket.socket(fileno=control)
    connection.set_inheritable(False)
    os.umask(0o022)
    rlimits.allow_open_files()
    try:
        enter_user_namespace()
        folder = PrivateFolder()
    except OSError as error:
        ipc.send(connection, {"error": why_not(error)})
        return
    groups = find_groups()
    continue_as_first_process(lambda: _clean_up(folder, groups))
    try:
        maker = Maker(gateway=gateway, prefix_length=prefix_length)
        host = IsolatedHost(folder.path, maker=maker, most_processes=most_processes, groups=groups)
    except OSError as error:
        ipc.send(connection, {"error": why_not(error)})
        return
    # Whoever is gone by now has nothing more to say either: the server sees that, and ends.
    with contextlib.suppress(BrokenPipeError):
        ipc.send(connection, {"ready": True})
    Server(connection, host).run()


def _clean_up(folder: PrivateFolder, groups: Groups | None) -> None:
    folder.remove()
    if groups is not None:
        groups.remove()
