"""`hack/cluster`: real clusters that live from `up` to `down`, each under a name.

Each has a folder in the user's state folder. A second `up` starts only what is missing; `down` ends every program and
removes the folder. Commands on the same cluster wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubernetes_build import AssetsError, ensure_assets
from real_cluster import ClusterError, RealCluster


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code: 0 done, 1 not possible, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    folder = clusters_folder() / options.name
    try:
        with _locked(folder):
            return _COMMANDS[options.command](folder, options)
    except (AssetsError, ClusterError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"cannot use {error.filename or folder}: {error.strerror}")


def clusters_folder() -> Path:
    """The folder that holds one folder for each cluster."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "dlop" / "clusters"


def up(folder: Path, options: argparse.Namespace) -> int:
    """Start the cluster, or what is missing of it."""
    needed = ("etcd", "kube-apiserver", "kubectl") + (("kube-controller-manager",) if options.controllers else ())
    kubectl = ensure_assets(needed)["kubectl"]
    cluster = RealCluster.load(folder)
    if not cluster.programs:
        _say(f"starting the cluster {options.name}")
        _create(cluster, controllers=options.controllers)
    else:
        _heal(cluster, controllers=options.controllers)
        cluster.wait_until_ready()
    _say(f"the cluster {options.name} is ready at {cluster.url}")
    _say(f'to use it: eval "$({_call("env", options.name)})"; kubectl is {kubectl}')
    return 0


def down(folder: Path, options: argparse.Namespace) -> int:
    """End every program of the cluster and forget it."""
    if not folder.exists():
        _say(f"there is no cluster {options.name}")
        return 0
    RealCluster.load(folder).stop()
    shutil.rmtree(folder)
    _say(f"the cluster {options.name} is gone")
    return 0


def status(folder: Path, options: argparse.Namespace) -> int:
    """Print what runs; the exit code is 0 only if all of it does."""
    cluster = RealCluster.load(folder)
    for program in cluster.programs.values():
        state = f"running, pid {program.pid}, port {program.port}" if cluster.is_running(program.name) else "not running"
        print(f"{program.name}: {state}")
    if _is_whole(cluster):
        print(f"the cluster {options.name} is up at {cluster.url}")
        return 0
    print(f"the cluster {options.name} is not up: {_call('up', options.name)}")
    return 1


def env(folder: Path, options: argparse.Namespace) -> int:
    """Print the shell line that makes the cluster the current one."""
    cluster = RealCluster.load(folder)
    if not _is_whole(cluster):
        return _refuse(f"the cluster {options.name} is not up: {_call('up', options.name)}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig_path))}")
    return 0


_COMMANDS = {"up": up, "down": down, "status": status, "env": env}


def _create(cluster: RealCluster, *, controllers: bool) -> None:
    try:
        cluster.create(controllers=controllers)
        cluster.wait_until_ready()
    except BaseException:
        # Also when the user gives up waiting: a cluster is there as a whole or not at all.
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)
        raise


def _heal(cluster: RealCluster, *, controllers: bool) -> None:
    for name in cluster.programs:
        if not cluster.is_running(name):
            _say(f"{name} was not running: starting it again")
            cluster.restart(name)
    if controllers and "kube-controller-manager" not in cluster.programs:
        cluster.add_controllers()


def _is_whole(cluster: RealCluster) -> bool:
    return bool(cluster.programs) and all(cluster.is_running(name) for name in cluster.programs)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/cluster", description="A real etcd and kube-apiserver on loopback, built from source where they are missing."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|down|status|env")
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        subparser.add_argument("--name", type=_name, default="default", help="which cluster; several can run at once")
        if name == "up":
            subparser.add_argument("--controllers", action="store_true", help="also run kube-controller-manager")
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name: use up to 40 of a-z, 0-9 and '-'")
    return text


def _call(command: str, name: str) -> str:
    return f"hack/cluster {command}" + ("" if name == "default" else f" --name {name}")


def _refuse(reason: str) -> int:
    print(f"hack/cluster: {reason}", file=sys.stderr)
    return 1


def _say(line: str) -> None:
    # Standard output belongs to what a script may read: the lines of `env` and `status`.
    print(line, file=sys.stderr, flush=True)
