"""Git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

GIT_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", "test"), ("EMAIL", "test@example.org"))
    },
}
"""An author and a committer, without the configuration of the machine."""


def git(directory: Path, *arguments: str) -> str:
    """Run git in a directory, without the configuration of the machine. Returns its output."""
    command = ["git", "-C", str(directory), *arguments]
    done = subprocess.run(command, env=GIT_ENVIRONMENT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(directory: Path, files: Mapping[str, str]) -> str:
    """Commit these files. Returns the hash."""
    for name, content in files.items():
        (directory / name).write_text(content)
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message=change")
    return git(directory, "rev-parse", "HEAD")


def bare_repository(path: Path, *versions: Mapping[str, str]) -> Path:
    """A bare repository. Its branch `main` has a commit with tag `vN` for each of these sets of files, and `dev` the last but one."""
    work = path.with_name(f"{path.name}-work")
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--initial-branch=main")
    for number, files in enumerate(versions, start=1):
        commit(work, files)
        git(work, "tag", f"v{number}")
    git(work, "branch", "dev", f"v{max(1, len(versions) - 1)}")
    git(work, "clone", "--quiet", "--bare", str(work), str(path))
    return path
