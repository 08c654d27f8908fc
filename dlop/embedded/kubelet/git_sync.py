"""A minimal git-sync that clones a repository once, with the git of the machine.

It is configured with the variables `GIT_SYNC_*` of git-sync, runs as a separate program inside a pod and imports nothing of dlop. Values
are arguments of git, never part of a shell line. Git runs no hooks, asks for no passwords and uses only the transports of a URL or a path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_FAILED = 1
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_ASKPASS": "",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_DEFAULTS = {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
_NETWORK_ERRORS = ("Could not resolve host", "Name or service not known", "Temporary failure in name resolution", "Network is unreachable")
_NETWORK_HINT = "pods have no external network: run `dlop local` with --network host"


class GitError(Exception):
    """Git has failed. The message is its output."""


class Repository:
    """A clone. Its directory is replaced if it exists, because an earlier try may have been interrupted."""

    def __init__(self, source: str, directory: Path, *, depth: str) -> None:
        self._source = source
        self._directory = directory
        self._depth = [f"--depth={depth}"] if depth not in ("", "0") else []

    def clone(self, *, branch: str, revision: str) -> None:
        """Clone a branch and check out a revision. Empty means the default branch, and the end of the branch.

        Raises:
            GitError: git has failed.
        """
        shutil.rmtree(self._directory, ignore_errors=True)
        branches = [f"--branch={branch}"] if branch else []
        # Without hard links to the repository, and with the depth also for a path.
        self._git("clone", "--no-local", "--quiet", *branches, *self._depth, "--", self._source, str(self._directory))
        if revision:
            self._git("checkout", "--quiet", "--detach", self._find(revision), "--", inside=True)
        self._git("submodule", "--quiet", "update", "--init", "--recursive", *self._depth, inside=True)

    def _find(self, revision: str) -> str:
        """The commit of a revision. It is fetched if the clone does not have it, for example because of the depth."""
        try:
            return self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", inside=True)
        except GitError:
            self._git("fetch", "--quiet", *self._depth, "--", "origin", revision, inside=True)
            return "FETCH_HEAD"

    def _git(self, *arguments: str, inside: bool = False) -> str:
        directory = ("-C", str(self._directory)) if inside else ()
        environment = {**_DEFAULTS, **os.environ, **_ENVIRONMENT}
        command = ["git", *directory, *_NO_HOOKS, *arguments]
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - no shell
        except FileNotFoundError:
            raise GitError("git is not installed on this machine") from None
        errors = done.stderr.decode(errors="replace").strip()
        if done.returncode:
            raise GitError(errors or f"git {arguments[0]} exited with code {done.returncode}")
        return done.stdout.decode(errors="replace").strip()


def main(variables: Mapping[str, str]) -> int:
    """Clone the repository. Returns the exit code."""
    missing = [name for name in ("GIT_SYNC_REPO", "GIT_SYNC_ROOT", "GIT_SYNC_DEST") if not variables.get(name)]
    if missing:
        return _print_error(f"the variable {missing[0]} is not set")
    directory = Path(variables["GIT_SYNC_ROOT"], variables["GIT_SYNC_DEST"])
    repository = Repository(variables["GIT_SYNC_REPO"], directory, depth=variables.get("GIT_SYNC_DEPTH", ""))
    try:
        repository.clone(branch=variables.get("GIT_SYNC_BRANCH", ""), revision=variables.get("GIT_SYNC_REV", ""))
    except GitError as error:
        hint = f"; {_NETWORK_HINT}" if any(text in str(error) for text in _NETWORK_ERRORS) else ""
        return _print_error(f"{error}{hint}")
    return 0


def _print_error(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return _FAILED


if __name__ == "__main__":
    sys.exit(main(os.environ))
