"""The program that clones git repositories on a node, with the git of the machine."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dlop.embedded.kubelet.git_sync_image import GIT_SYNC
from tests.git_repositories import bare_repository, commit, git


@dataclass(frozen=True)
class Clone:
    code: int
    message: str
    directory: Path

    @property
    def text(self) -> str:
        return (self.directory / "file").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits on `main`, of which the first two are on `dev`."""
    return bare_repository(tmp_path / "train.git", *({"file": f"version {number}"} for number in (1, 2, 3)))


def clone(source: Path | str, folder: Path, **variables: str) -> Clone:
    """Run the program as a container that has only these variables."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_SYNC_REPO": str(source),
        "GIT_SYNC_ROOT": str(folder / "code"),
        "GIT_SYNC_DEST": "train",
    }
    done = subprocess.run(
        GIT_SYNC.command, env=environment | variables, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    return Clone(done.returncode, done.stderr, folder / "code" / "train")


def history(cloned: Clone) -> int:
    return len(git(cloned.directory, "rev-list", "HEAD").splitlines())


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_the_end_of_the_default_branch_is_cloned_with_its_history(repository: Path, tmp_path: Path, prefix: str) -> None:
    cloned = clone(f"{prefix}{repository}", tmp_path)
    assert (cloned.code, cloned.message, cloned.text, history(cloned)) == (0, "", "version 3", 3)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"GIT_SYNC_BRANCH": "dev"}, "version 2"),
        ({"GIT_SYNC_REV": "v1"}, "version 1"),
        ({"GIT_SYNC_REV": "dev"}, "version 2"),
        ({"GIT_SYNC_REV": "HEAD~2"}, "version 1"),
        ({"GIT_SYNC_BRANCH": "dev", "GIT_SYNC_REV": "v3"}, "version 3"),
    ],
)
def test_a_branch_or_a_revision_is_checked_out(repository: Path, tmp_path: Path, variables: dict[str, str], text: str) -> None:
    cloned = clone(repository, tmp_path, **variables)
    assert (cloned.code, cloned.message, cloned.text) == (0, "", text)


def test_a_commit_is_checked_out_by_its_short_hash(repository: Path, tmp_path: Path) -> None:
    assert clone(repository, tmp_path, GIT_SYNC_REV=git(repository, "rev-parse", "v2")[:10]).text == "version 2"


def test_only_as_many_commits_are_cloned_as_the_depth_says(repository: Path, tmp_path: Path) -> None:
    assert history(clone(repository, tmp_path, GIT_SYNC_DEPTH="2")) == 2
    assert history(clone(repository, tmp_path, GIT_SYNC_DEPTH="0")) == 3


@pytest.mark.parametrize("revision", ["v1", "dev"])
def test_a_revision_beyond_the_depth_is_fetched(repository: Path, tmp_path: Path, revision: str) -> None:
    cloned = clone(repository, tmp_path, GIT_SYNC_DEPTH="1", GIT_SYNC_REV=revision)
    assert (cloned.text, history(cloned)) == ({"v1": "version 1", "dev": "version 2"}[revision], 1)


def test_a_clone_replaces_what_an_earlier_try_has_left(repository: Path, tmp_path: Path) -> None:
    first = clone(repository, tmp_path, GIT_SYNC_REV="v1")
    (first.directory / "left").touch()
    assert clone(repository, tmp_path).text == "version 3"
    assert not (first.directory / "left").exists()


def test_submodules_are_cloned(repository: Path, tmp_path: Path) -> None:
    library = bare_repository(tmp_path / "library.git", {"file": "library"})
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", str(repository), str(work))
    git(work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    commit(work, {"file": "with library"})
    cloned = clone(work, tmp_path)
    assert (cloned.code, (cloned.directory / "library" / "file").read_text()) == (0, "library")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"GIT_SYNC_REPO": "/missing.git"}, "fatal: repository '/missing.git' does not exist"),
        ({"GIT_SYNC_BRANCH": "nope"}, "fatal: Remote branch nope not found in upstream origin"),
        ({"GIT_SYNC_REV": "nope"}, "fatal: couldn't find remote ref nope"),
        ({"GIT_SYNC_DEPTH": "many"}, "fatal: depth many is not a positive number"),
        ({"GIT_SYNC_REPO": ""}, "the variable GIT_SYNC_REPO is not set"),
        ({"PATH": "/nowhere"}, "git is not installed on this machine"),
    ],
)
def test_a_failure_ends_with_the_message_of_git(repository: Path, tmp_path: Path, variables: dict[str, str], message: str) -> None:
    failed = clone(repository, tmp_path, **variables)
    assert (failed.code, failed.message.splitlines()[-1]) == (1, message)


def test_a_repository_that_is_not_reachable_from_pods_is_reported_with_the_flag_to_use(tmp_path: Path) -> None:
    failed = clone("https://no-such-host.invalid/train.git", tmp_path)
    assert failed.code == 1
    assert failed.message.splitlines()[-1].endswith("; pods have no external network: run `dlop local` with --network host")


# --- what a repository and its address cannot do ---


@pytest.mark.parametrize(
    "variables",
    [
        {"GIT_SYNC_REPO": "ext::sh -c touch% proof"},
        {"GIT_SYNC_REPO": "--upload-pack=touch proof"},
        {"GIT_SYNC_BRANCH": "--upload-pack=touch proof"},
        {"GIT_SYNC_REV": "--upload-pack=touch proof"},
        {"GIT_SYNC_REV": "; touch proof"},
        {"GIT_SYNC_DEPTH": "1 --upload-pack=touch proof"},
        {"GIT_SYNC_REPO": "$(touch proof)"},
    ],
)
def test_no_value_runs_a_program(repository: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    assert clone(repository, tmp_path, **variables).code == 1
    assert list(tmp_path.rglob("proof")) == []


def test_a_submodule_cannot_use_a_transport_that_runs_programs(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", str(repository), str(work))
    (work / ".gitmodules").write_text('[submodule "evil"]\n\tpath = evil\n\turl = ext::sh -c touch% proof\n')
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{git(work, 'rev-parse', 'HEAD')},evil")
    git(work, "add", ".gitmodules")
    git(work, "commit", "--quiet", "--message=evil")
    failed = clone(work, tmp_path)
    assert failed.code == 1
    assert "transport 'ext' not allowed" in failed.message
    assert list(tmp_path.rglob("proof")) == []


@pytest.mark.parametrize("setting", ["core.hooksPath", "init.templateDir"])
def test_hooks_of_the_machine_do_not_run(repository: Path, tmp_path: Path, setting: str) -> None:
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/proof\n")
        (hooks / name).chmod(0o755)
    configuration = tmp_path / "gitconfig"
    git(tmp_path, "config", "--file", str(configuration), setting, str(hooks if setting == "core.hooksPath" else hooks.parent))
    assert clone(repository, tmp_path, GIT_CONFIG_GLOBAL=str(configuration), GIT_SYNC_REV="v1").text == "version 1"
    assert list(tmp_path.rglob("proof")) == []


class _Unauthorized(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def private_url() -> Iterator[str]:
    """The URL of a repository that needs a password."""
    with HTTPServer(("127.0.0.1", 0), _Unauthorized) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/train.git"
        server.shutdown()
        thread.join()


def test_git_does_not_ask_for_a_password(private_url: str, tmp_path: Path) -> None:
    program = tmp_path / "askpass"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/proof\n")
    program.chmod(0o755)
    failed = clone(private_url, tmp_path, GIT_ASKPASS=str(program), no_proxy="127.0.0.1")
    assert failed.code == 1
    assert "terminal prompts disabled" in failed.message
    assert list(tmp_path.rglob("proof")) == []
