"""Paths and names are rewritten where they match as a whole, and nowhere else."""

from __future__ import annotations

import pytest

from dlop.embedded.kubelet.runtime.path_rewrite import rewriter

PATHS = {"/data": "/host/volume", "/data/deep": "/host/deep", "/etc/config/": "/host/config/"}
NAMES = {"worker-0": "127.1.0.1", "worker-0.jobs.svc": "127.1.0.1", "worker-1": "127.1.0.2", "host": "127.9.9.9"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/host/volume"),
        ("/data/", "/host/volume/"),
        ("/data/x/y", "/host/volume/x/y"),
        ("/data/deep/x", "/host/deep/x"),
        ("/data/deeper", "/host/volume/deeper"),
        ("--out=/data/x", "--out=/host/volume/x"),
        ("/data:/data/deep", "/host/volume:/host/deep"),
        ("cat </data/a >/data/b", "cat </host/volume/a >/host/volume/b"),
        ("file:/data", "file:/host/volume"),
        ("/etc/config/a", "/host/config/a"),
        ("/mnt/data", "/mnt/data"),
        ("/database", "/database"),
        ("/data.txt", "/data.txt"),
        ("/data-old", "/data-old"),
        ("s3://data/x", "s3://data/x"),
        ("data", "data"),
    ],
)
def test_a_mount_path_becomes_the_path_on_the_host(text: str, expected: str) -> None:
    assert rewriter(paths=PATHS, names={})(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker-0", "127.1.0.1"),
        ("worker-0:22", "127.1.0.1:22"),
        ("worker-0.jobs.svc:22", "127.1.0.1:22"),
        ("http://worker-1/x", "http://127.1.0.2/x"),
        ("worker-0,worker-1", "127.1.0.1,127.1.0.2"),
        ('{"worker": ["worker-0:1", "worker-1:1"]}', '{"worker": ["127.1.0.1:1", "127.1.0.2:1"]}'),
        ("Talk to worker-0.", "Talk to 127.1.0.1."),
        ("worker-01", "worker-01"),
        ("my-worker-0", "my-worker-0"),
        ("worker-0.other.svc", "worker-0.other.svc"),
        ("a.worker-0", "a.worker-0"),
        ("worker-0-x", "worker-0-x"),
    ],
)
def test_a_name_becomes_an_address(text: str, expected: str) -> None:
    assert rewriter(paths={}, names=NAMES)(text) == expected


def test_a_name_in_a_host_path_is_not_rewritten() -> None:
    assert rewriter(paths=PATHS, names=NAMES)("/data/x") == "/host/volume/x"
