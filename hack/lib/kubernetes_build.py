"""Finds or builds the programs of a real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, kubectl.

The search path is `KUBEBUILDER_ASSETS`, as in kubebuilder, and then a cache directory in the user's home. Missing programs are
built into the cache directory from sources of the Go module proxy. `DLOP_KUBERNETES_VERSION` selects the version: `newest`, `oldest`
or a version of the Go module proxy such as `1.33.0`. If it is set, `KUBEBUILDER_ASSETS` is ignored, because its version is unknown.
This module uses only the standard library, because it also runs before the packages of the project are installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

OLDEST_VERSION, NEWEST_VERSION = "v1.30.0", "v1.36.3"
"""The supported versions of Kubernetes. The tests run on the newest, and with `hack/test --thorough` also on the oldest."""
VERSION_VARIABLE = "DLOP_KUBERNETES_VERSION"
ETCD_VERSION = "v3.7.3"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")

_NAMED_VERSIONS = {"": NEWEST_VERSION, "newest": NEWEST_VERSION, "oldest": OLDEST_VERSION}
_PROGRESS_INTERVAL_SECONDS = 15.0


class AssetsError(Exception):
    """The programs are missing and cannot be built."""


def kubernetes_version() -> str:
    """The selected version, such as `v1.36.3`."""
    selected = os.environ.get(VERSION_VARIABLE, "")
    version = _NAMED_VERSIONS.get(selected, f"v{selected.removeprefix('v')}")
    if not re.fullmatch(r"v1\.\d+\.\d+", version):
        raise AssetsError(f"{VERSION_VARIABLE}={selected}: must be newest, oldest or a version such as 1.33.0")
    return version


def cache_directory() -> Path:
    """The directory of built programs."""
    return cache_base() / f"kubernetes-{kubernetes_version()}-etcd-{ETCD_VERSION}"


def cache_base() -> Path:
    """The directory of everything that is built once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlop"


def find_assets(programs: tuple[str, ...] = PROGRAMS) -> Mapping[str, Path] | None:
    """The paths of the programs; None if one is missing. Does not build."""
    assets = "" if os.environ.get(VERSION_VARIABLE) else os.environ.get("KUBEBUILDER_ASSETS")
    directories = [Path(assets), cache_directory()] if assets else [cache_directory()]
    paths: dict[str, Path] = {}
    for program in programs:
        path = next((directory / program for directory in directories if os.access(directory / program, os.X_OK)), None)
        if path is None:
            return None
        paths[program] = path
    return paths


def require_assets(programs: tuple[str, ...] = PROGRAMS) -> Mapping[str, Path]:
    """The paths of the programs. Does not build, because a build takes longer than the timeout of a test.

    Raises:
        AssetsError: a program is missing.
    """
    paths = find_assets(programs)
    if paths is None:
        raise AssetsError(
            f"not all of {', '.join(programs)} are in KUBEBUILDER_ASSETS or {cache_directory()}: "
            "run `hack/cluster up --controllers` to build them once"
        )
    return paths


def ensure_assets(programs: tuple[str, ...] = PROGRAMS) -> Mapping[str, Path]:
    """The paths of the programs. Builds those that are missing.

    Raises:
        AssetsError: a program is missing and Go is not installed, or the build fails.
    """
    paths = find_assets(programs)
    if paths is not None:
        return paths
    go = shutil.which("go")
    if go is None:
        raise AssetsError(
            f"no {', '.join(programs)} in KUBEBUILDER_ASSETS or {cache_directory()}, and Go is not installed: "
            "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a directory that contains these programs "
            f"and unset {VERSION_VARIABLE}"
        )
    with build_lock(cache_directory()):
        paths = find_assets(programs)
        if paths is None:
            _build_missing(go, programs)
            paths = find_assets(programs)
    if paths is None:
        raise AssetsError(f"the build succeeded, but {', '.join(programs)} are not all in {cache_directory()}")
    return paths


@contextlib.contextmanager
def build_lock(directory: Path) -> Iterator[None]:
    """Create the directory, and let one process at a time build into it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_missing(go: str, programs: tuple[str, ...]) -> None:
    missing = [program for program in programs if not (cache_directory() / program).exists()]
    _log(f"building {', '.join(missing)} of Kubernetes {kubernetes_version()} from source; this takes five to ten minutes, once")
    started = time.monotonic()
    if "etcd" in missing:
        _build_etcd(go)
    if kubernetes := [program for program in missing if program != "etcd"]:
        _build_kubernetes(go, kubernetes)
    _log(f"built in {time.monotonic() - started:.0f} s; stored in {cache_directory()}")


def _build_etcd(go: str) -> None:
    source = cache_directory() / "src" / "etcd"
    source.mkdir(parents=True, exist_ok=True)
    package = "go.etcd.io/etcd/server/v3"
    (source / "go.mod").write_text(f"module dlop/etcd\n\ngo 1.26\n\nrequire {package} {ETCD_VERSION}\n")
    compile_program(go, source, cache_directory() / "etcd", package=package, ldflags="-s -w")


def _build_kubernetes(go: str, programs: list[str]) -> None:
    source = _kubernetes_source(go)
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    ldflags = f"-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    for program in programs:
        compile_program(go, source, cache_directory() / program, package=f"./cmd/{program}", ldflags=ldflags)


def _kubernetes_source(go: str) -> Path:
    """A writable copy of the Kubernetes sources that uses the published versions of the staging modules."""
    source = cache_directory() / "src" / "kubernetes"
    if (source / ".ready").exists():
        return source
    copy_module(go, f"k8s.io/kubernetes@{kubernetes_version()}", source)
    go_mod = (source / "go.mod").read_text()
    staging_version = kubernetes_version().replace("v1.", "v0.", 1)
    staging = sorted(set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0$", go_mod, re.MULTILINE)))
    # Remove `replace` directives with paths, because the published module does not contain the staging sources.
    go_mod = re.sub(r"^.*=> \./staging/.*$\n?", "", go_mod, flags=re.MULTILINE)
    replacements = "".join(f"replace {name} => {name} {staging_version}\n" for name in staging)
    (source / "go.mod").write_text(go_mod + "\n" + replacements)
    (source / ".ready").touch()
    return source


def copy_module(go: str, module: str, target: Path) -> None:
    """Write a writable copy of the sources of a module, such as `example.org/name@v1.2.3`.

    Raises:
        AssetsError: the Go module proxy does not have it.
    """
    _log(f"downloading the sources of {module}")
    process = subprocess.run([go, "mod", "download", "-json", module], cwd="/", capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise AssetsError(f"cannot download {module} from the Go module proxy: {(process.stderr or process.stdout).strip()}")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(json.loads(process.stdout)["Dir"], target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


def compile_program(go: str, source: Path, target: Path, *, package: str, ldflags: str) -> None:
    """Compile a package of the module in `source` to the file `target`, and report progress.

    Raises:
        AssetsError: the build fails.
    """
    program = target.name
    temporary = target.with_suffix(".part")
    command = [go, "build", "-mod=mod", "-trimpath", "-ldflags", ldflags, "-o", str(temporary), package]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    log = target.parent / f"{program}.build.log"
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT)
        while True:
            try:
                code = process.wait(timeout=_PROGRESS_INTERVAL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                _log(f"  {program}: {time.monotonic() - started:.0f} s")
    if code != 0:
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise AssetsError(f"cannot build {program} (full log: {log}):\n{tail}")
    temporary.replace(target)
    _log(f"  {program}: done in {time.monotonic() - started:.0f} s")


def _log(line: str) -> None:
    # Standard output belongs to the caller: `hack/cluster env` prints shell code.
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Build missing programs and print the paths of all of them."""
    try:
        for program, path in ensure_assets().items():
            print(f"{program}: {path}")
    except AssetsError as error:
        _log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
