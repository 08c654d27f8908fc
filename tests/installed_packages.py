"""Packages that declare frameworks, as pip installs them."""

from __future__ import annotations

from pathlib import Path


def install(directory: Path, package: str, entry_point: str) -> None:
    """Install a package with this entry point (`name = module:Class`) into a directory of `sys.path`."""
    folder = directory / f"{package.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[dlop.frameworks]\n{entry_point}\n")
