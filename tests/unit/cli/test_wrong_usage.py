"""Invalid usage is reported in one sentence that names the argument and how to fix it, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlop.cli.main import main

MISSING = "/no/such/file"
INVALID_USAGES = {
    "run --workers zero": (2, "--workers: invalid value 'zero': must be an integer"),
    "run --workers 0": (2, "--workers: invalid value '0': must be greater than or equal to 1"),
    "run --drain-seconds soon": (2, "--drain-seconds: invalid value 'soon': must be a number, in seconds"),
    "run --leader-election maybe": (2, "--leader-election: invalid value 'maybe': must be true or false"),
    "run --log-level loud": (2, "--log-level: invalid value 'loud': must be 'debug', 'info', 'warning' or 'error'"),
    "run --renew-deadline-seconds 20": (2, "--lease-duration-seconds must be greater than --renew-deadline-seconds"),
    "run --colour red": (2, "unrecognized arguments: --colour red. See `dlop run --help`."),
    "rnder job.yaml": (2, "unknown command; did you mean 'render'?"),
    "render": (2, "the following arguments are required: FILE."),
    f"render {MISSING}": (1, f"{MISSING} cannot be read: No such file or directory."),
    "crds --kinds Foo": (1, "unknown kind 'Foo'; known kinds: elasticdljobs.training.kubedl.io, "),
    "crds --framework ring": (1, "'ring' is not a class reference; use module:Class, for example ring.job:RingJob"),
    "crds --framework no_such:Job": (1, "cannot import module 'no_such' of 'no_such:Job'"),
    "crds --framework os:Job": (1, "cannot load 'os:Job': module 'os' has no attribute 'Job'"),
    "crds --framework os:path": (1, "'os:path' must be a subclass of dlop.DLJob"),
    "crds --framework dlop:DLJob": (1, "'dlop:DLJob' must be a subclass of dlop.DLJob that declares a job_type"),
    "new-framework": (2, "the following arguments are required: NAME."),
    "new-framework ring": (2, "JobType kind 'ring' must be in CamelCase, like 'RingJob'."),
    "new-framework RingJob --group here": (2, "JobType group 'here' must be a domain, like 'example.org'."),
    f"install --kubeconfig {MISSING}": (1, f"kubeconfig {MISSING} does not exist: set KUBECONFIG to an existing file, or pass its path"),
    f"manifests --check {MISSING}": (1, f"Run: python -m dlop manifests --out {MISSING}"),
    "scale job": (2, "the following arguments are required: ROLE=N."),
    "scale job worker": (2, "'worker' is not of the form ROLE=N, for example worker=3."),
    "scale job worker=-1": (2, "'worker=-1' is not of the form ROLE=N"),
    "scale job worker=1 Worker=2": (2, "the role Worker is specified twice."),
    "wait job --timeout soon": (2, "argument --timeout: 'soon' is not a duration; use 90s, 5m or 1h30m."),
    "wait job --for ever": (
        2,
        "argument --for: invalid choice: 'ever' (choose from 'succeeded', 'failed', 'finished', 'running', 'deleted')",
    ),
    "logs job --tail many": (2, "argument --tail: 'many' is not a number of lines."),
    "logs job --index first": (2, "argument --index: 'first' is not the index of a replica, such as 0."),
    "describe job --tail -1": (2, "argument --tail: '-1' is not a number of lines."),
    "run --workloads -RingJob": (2, "--workloads: invalid value '-RingJob': must be one of TFJob, PyTorchJob"),
    "run --workloads": (2, "argument --workloads: expected one argument. See `dlop run --help`."),
    "logs": (2, "the following arguments are required: [KIND/]JOB."),
    "get -o yaml": (2, "argument -o/--output: invalid choice: 'yaml' (choose from 'text', 'json')"),
    f"submit {MISSING}": (2, f"{MISSING} cannot be read: No such file or directory."),
    f"describe job --kubeconfig {MISSING}": (
        1,
        f"kubeconfig {MISSING} does not exist: set KUBECONFIG to an existing file, or pass its path",
    ),
    "completion": (2, "the following arguments are required: {bash,zsh,fish}."),
    "completion tcsh": (2, "invalid choice: 'tcsh' (choose from 'bash', 'zsh', 'fish')"),
    "deploy --image": (2, "argument --image: expected one argument."),
    "deploy --with mpi:b --watch-namespace a": (1, "--with mpi:b: the operator does not watch this namespace: add --watch-namespace b"),
    "deploy --replicas 0": (2, "invalid value '0': must be an integer of at least 1"),
    "deploy --with mpi,gnag": (1, "unknown permission set 'gnag'; available: mpi, hpa, paddle, elasticjob, ingress, kueue, gang"),
}


@pytest.mark.parametrize("words", INVALID_USAGES)
def test_invalid_usage_is_reported_with_a_fix(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, expected = INVALID_USAGES[words]
    assert main(words.split()) == code
    error = capsys.readouterr().err
    assert error.startswith(f"dlop {words.split(maxsplit=1)[0]}: ")
    assert expected in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_an_invalid_environment_variable_is_reported_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DLOP_WORKERS", "many")
    assert main(["run"]) == 2
    assert capsys.readouterr().err == "dlop run: DLOP_WORKERS: invalid value 'many': must be an integer\n"
