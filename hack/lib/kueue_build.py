"""Finds or builds Kueue, for the test of queues with the real one. Like the control plane, it is built once, from the Go module proxy.

This module uses only the standard library, because it also runs before the packages of the project are installed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kubernetes_build import AssetsError, build_lock, cache_base, compile_program, copy_module

KUEUE_VERSION = "v0.16.2"
_MODULE = "sigs.k8s.io/kueue"
_METRICS_CERTIFICATES = '"/etc/kueue/metrics/certs"'


def kueue_directory() -> Path:
    """The directory with the program `kueue` and its sources in `src`."""
    return cache_base() / f"kueue-{KUEUE_VERSION}"


def require_kueue() -> Path:
    """The program. Does not build, because a build takes longer than the timeout of a test.

    Raises:
        AssetsError: it is missing.
    """
    program = kueue_directory() / "kueue"
    if not program.exists():
        raise AssetsError(f"Kueue {KUEUE_VERSION} is not in {kueue_directory()}: run `python hack/lib/kueue_build.py` to build it once")
    return program


def crd_files() -> list[Path]:
    return sorted((kueue_directory() / "src" / "config/components/crd/bases").glob("*.yaml"))


def webhook_file() -> Path:
    return kueue_directory() / "src" / "config/components/webhook/manifests.yaml"


def ensure_kueue() -> Path:
    """The program. Builds it if it is missing.

    Raises:
        AssetsError: Go is not installed, or the build fails.
    """
    directory = kueue_directory()
    program, source = directory / "kueue", directory / "src"
    with build_lock(directory):
        if program.exists():
            return program
        go = shutil.which("go")
        if go is None:
            raise AssetsError(f"Kueue is not in {directory}, and Go is not installed: install Go 1.26 or newer")
        copy_module(go, f"{_MODULE}@{KUEUE_VERSION}", source)
        # Kueue has no setting for this path, which only root could create.
        main = source / "cmd" / "kueue" / "main.go"
        text = main.read_text()
        if _METRICS_CERTIFICATES not in text:
            raise AssetsError(f"{main} does not contain {_METRICS_CERTIFICATES}; adapt {Path(__file__).name} to this version")
        main.write_text(text.replace(_METRICS_CERTIFICATES, '"certificates"'))
        compile_program(go, source, program, package="./cmd/kueue", ldflags="-s -w")
    return program


if __name__ == "__main__":
    try:
        print(ensure_kueue())
    except AssetsError as error:
        sys.exit(str(error))
