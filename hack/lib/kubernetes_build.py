"""Finds or builds the programs of a real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, kubectl.

They are looked for in `KUBEBUILDER_ASSETS` (the convention of controller authors), then in a cache folder of the
user's home, and are else built there from the Go module proxy. Only the standard library is used: this also runs
before the project's own packages are installed.
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

KUBERNETES_VERSION = "v1.36.3"
ETCD_VERSION = "v3.7.3"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")

# Messages of a build go to standard error: standard output belongs to the caller (`hack/cluster env` prints shell code).
_PROGRESS_EVERY_SECONDS = 15.0


class AssetsError(Exception):
    """The programs are neither installed nor can be built; the message says what to do."""


def cache_folder() -> Path:
    """The folder where built programs are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dlop" / f"kubernetes-{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}"


def find_assets(programs: tuple[str, ...] = PROGRAMS) -> Mapping[str, Path] | None:
    """The paths of the programs if all of them are there already, without building anything."""
    folders = [Path(os.environ["KUBEBUILDER_ASSETS"])] if os.environ.get("KUBEBUILDER_ASSETS") else []
    folders.append(cache_folder())
    found: dict[str, Path] = {}
    for program in programs:
        place = next((folder / program for folder in folders if os.access(folder / program, os.X_OK)), None)
        if place is None:
            return None
        found[program] = place
    return found


def require_assets(programs: tuple[str, ...] = PROGRAMS) -> Mapping[str, Path]:
    """The paths of the programs that are there already. Tests use this: their time limits are not made for a build.

    Raises:
        AssetsError: when one is missing.
    """
    found = find_assets(programs)
    if found is None:
        raise AssetsError(
            f"not all of {', '.join(programs)} are in KUBEBUILDER_ASSETS or {cache_folder()}: "
            "`hack/cluster up --controllers` builds them there, once"
        )
    return found


def ensure_assets(programs: tuple[str, ...] = PROGRAMS) -> Mapping[str, Path]:
    """The paths of the programs, built first where they are missing.

    Raises:
        AssetsError: when something is missing and there is no Go to build it with, or the build fails.
    """
    found = find_assets(programs)
    if found is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise AssetsError(
            f"no {', '.join(programs)} in KUBEBUILDER_ASSETS or {cache_folder()}, and no Go to build them with: "
            "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a folder that holds these programs"
        )
    with _one_build_at_a_time():
        found = find_assets(programs)
        if found is None:
            _build_missing(go, programs)
            found = find_assets(programs)
    if found is None:
        raise AssetsError(f"the build ended without an error but left no {', '.join(programs)} in {cache_folder()}")
    return found


@contextlib.contextmanager
def _one_build_at_a_time() -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_missing(go: str, programs: tuple[str, ...]) -> None:
    missing = [program for program in programs if not (cache_folder() / program).exists()]
    _say(f"building {', '.join(missing)} from source, once: five to ten minutes")
    started = time.monotonic()
    if "etcd" in missing:
        _build_etcd(go)
    if kubernetes := [program for program in missing if program != "etcd"]:
        _build_kubernetes(go, kubernetes)
    _say(f"built in {time.monotonic() - started:.0f} s; kept in {cache_folder()}")


def _build_etcd(go: str) -> None:
    source = cache_folder() / "src" / "etcd"
    source.mkdir(parents=True, exist_ok=True)
    package = "go.etcd.io/etcd/server/v3"
    (source / "go.mod").write_text(f"module dlop/etcd\n\ngo 1.26\n\nrequire {package} {ETCD_VERSION}\n")
    _compile(go, source, program="etcd", package=package, ldflags="-s -w")


def _build_kubernetes(go: str, programs: list[str]) -> None:
    source = _kubernetes_source(go)
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    version = "k8s.io/component-base/version"
    ldflags = " ".join(
        ["-s", "-w", f"-X {version}.gitVersion={KUBERNETES_VERSION}", f"-X {version}.gitMajor={major}", f"-X {version}.gitMinor={minor}"]
    )
    for program in programs:
        _compile(go, source, program=program, package=f"./cmd/{program}", ldflags=ldflags)


def _kubernetes_source(go: str) -> Path:
    """A writable copy of the Kubernetes sources whose staging modules point at their published versions."""
    source = cache_folder() / "src" / "kubernetes"
    if (source / ".ready").exists():
        return source
    _say(f"fetching the sources of Kubernetes {KUBERNETES_VERSION}")
    module = f"k8s.io/kubernetes@{KUBERNETES_VERSION}"
    answer = subprocess.run([go, "mod", "download", "-json", module], cwd="/", capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise AssetsError(f"cannot fetch {module} from the Go module proxy: {(answer.stderr or answer.stdout).strip()}")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(answer.stdout)["Dir"], source)
    for path in [source, *source.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    go_mod = (source / "go.mod").read_text()
    staging_version = KUBERNETES_VERSION.replace("v1.", "v0.", 1)
    staging = sorted(set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0$", go_mod, re.MULTILINE)))
    # A `replace` by folder would point at staging sources that the published module does not contain.
    go_mod = re.sub(r"^.*=> \./staging/.*$\n?", "", go_mod, flags=re.MULTILINE)
    replacements = "".join(f"replace {name} => {name} {staging_version}\n" for name in staging)
    (source / "go.mod").write_text(go_mod + "\n" + replacements)
    (source / ".ready").touch()
    return source


def _compile(go: str, source: Path, *, program: str, package: str, ldflags: str) -> None:
    target = cache_folder() / program
    unfinished = target.with_suffix(".part")
    command = [go, "build", "-mod=mod", "-trimpath", "-ldflags", ldflags, "-o", str(unfinished), package]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    log = cache_folder() / f"{program}.build.log"
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT)
        while True:
            try:
                code = process.wait(timeout=_PROGRESS_EVERY_SECONDS)
                break
            except subprocess.TimeoutExpired:
                _say(f"  {program}: {time.monotonic() - started:.0f} s")
    if code != 0:
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise AssetsError(f"cannot build {program} (the whole log is {log}):\n{tail}")
    unfinished.replace(target)
    _say(f"  {program}: done in {time.monotonic() - started:.0f} s")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Build what is missing and print where everything is."""
    try:
        for program, path in ensure_assets().items():
            print(f"{program}: {path}")
    except AssetsError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
