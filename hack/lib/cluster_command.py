"""`hack/cluster`: real control planes, identified by name, that run from `up` to `down`.

Each has a directory in the user's state directory. A second `up` starts only stopped programs. `down` stops all programs and
removes the directory. A lock per cluster serializes the commands.
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
    """Run one command and return the exit code: 0 success, 1 failure, 2 invalid usage."""
    options = _parser().parse_args(arguments)
    folder = clusters_folder() / options.name
    try:
        with _lock(folder):
            return _COMMANDS[options.command](folder, options)
    except (AssetsError, ClusterError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or folder}: {error.strerror}")


def clusters_folder() -> Path:
    """The directory that contains one directory per cluster."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "dlop" / "clusters"


def up(folder: Path, options: argparse.Namespace) -> int:
    """Start the cluster, or those of its programs that are not running."""
    required = ("etcd", "kube-apiserver", "kubectl") + (("kube-controller-manager",) if options.controllers else ())
    kubectl = ensure_assets(required)["kubectl"]
    cluster = RealCluster.load(folder)
    if not cluster.programs:
        _log(f"starting cluster {options.name}")
        _create(cluster, controllers=options.controllers)
    else:
        _start_stopped(cluster, controllers=options.controllers)
        cluster.wait_until_ready()
    _log(f"cluster {options.name} is ready at {cluster.url}")
    _log(f'to use it, run: eval "$({_command_line("env", options.name)})"; kubectl is {kubectl}')
    return 0


def down(folder: Path, options: argparse.Namespace) -> int:
    """Stop all programs of the cluster and remove its directory."""
    if not folder.exists():
        _log(f"cluster {options.name} not found")
        return 0
    RealCluster.load(folder).stop()
    shutil.rmtree(folder)
    _log(f"cluster {options.name} deleted")
    return 0


def status(folder: Path, options: argparse.Namespace) -> int:
    """Print the state of the programs; the exit code is 0 only if all of them are running."""
    cluster = RealCluster.load(folder)
    for program in cluster.programs.values():
        state = f"running, pid {program.pid}, port {program.port}" if cluster.is_running(program.name) else "not running"
        print(f"{program.name}: {state}")
    if _is_running(cluster):
        print(f"cluster {options.name} is running at {cluster.url}")
        return 0
    print(f"cluster {options.name} is not running: run {_command_line('up', options.name)}")
    return 1


def env(folder: Path, options: argparse.Namespace) -> int:
    """Print the shell command that sets KUBECONFIG."""
    cluster = RealCluster.load(folder)
    if not _is_running(cluster):
        return _fail(f"cluster {options.name} is not running: run {_command_line('up', options.name)}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig_path))}")
    return 0


_COMMANDS = {"up": up, "down": down, "status": status, "env": env}


def _create(cluster: RealCluster, *, controllers: bool) -> None:
    try:
        cluster.create(controllers=controllers)
        cluster.wait_until_ready()
    except BaseException:
        # Also on KeyboardInterrupt: leave no partial cluster behind.
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)
        raise


def _start_stopped(cluster: RealCluster, *, controllers: bool) -> None:
    for name in cluster.programs:
        if not cluster.is_running(name):
            _log(f"{name} is not running, restarting it")
            cluster.restart(name)
    if controllers and "kube-controller-manager" not in cluster.programs:
        cluster.add_controllers()


def _is_running(cluster: RealCluster) -> bool:
    return bool(cluster.programs) and all(cluster.is_running(name) for name in cluster.programs)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/cluster", description="A real etcd and kube-apiserver on loopback, built from source if they are missing."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|down|status|env")
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        subparser.add_argument("--name", type=_parse_name, default="default", help="name of the cluster; several can run at the same time")
        if name == "up":
            subparser.add_argument("--controllers", action="store_true", help="also run kube-controller-manager")
    return parser


def _parse_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid name: use up to 40 characters of a-z, 0-9 and '-'")
    return text


def _command_line(command: str, name: str) -> str:
    return f"hack/cluster {command}" + ("" if name == "default" else f" --name {name}")


def _fail(reason: str) -> int:
    print(f"hack/cluster: {reason}", file=sys.stderr)
    return 1


def _log(line: str) -> None:
    # Standard output is reserved for what scripts read: the output of `env` and `status`.
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
