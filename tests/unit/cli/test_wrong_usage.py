"""Whatever is called wrongly is told in one sentence that names it and says what to write, and never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlop.cli.main import main

NOWHERE = "/no/such/file"
WRONG = {
    "run --workers zero": (2, "--workers is 'zero'; write a whole number"),
    "run --workers 0": (2, "--workers is '0'; write greater than or equal to 1"),
    "run --drain-seconds soon": (2, "--drain-seconds is 'soon'; write a number, in seconds"),
    "run --leader-election maybe": (2, "--leader-election is 'maybe'; write true or false"),
    "run --log-level loud": (2, "--log-level is 'loud'; write 'debug', 'info', 'warning' or 'error'"),
    "run --renew-deadline-seconds 20": (2, "--lease-duration-seconds must be more than --renew-deadline-seconds"),
    "run --colour red": (2, "unrecognized arguments: --colour red. `dlop run --help` shows how it is called."),
    "rnder job.yaml": (2, "there is no such command; did you mean 'render'?"),
    "render": (2, "the following arguments are required: FILE."),
    f"render {NOWHERE}": (1, f"{NOWHERE} cannot be read: No such file or directory."),
    "crds --kinds Foo": (1, "'Foo' is not the name of a kind. Write one of: jaxjobs.kubeflow.org, "),
    "crds --framework ring": (1, "'ring' does not name a class. Write it as module:Class, for example ring.job:RingJob."),
    "crds --framework no_such:Job": (1, "the module 'no_such' of 'no_such:Job' cannot be imported"),
    "crds --framework os:Job": (1, "'os:Job' does not exist: the module 'os' can be imported, but has no 'Job'."),
    "crds --framework os:path": (1, "'os:path' must be a class that extends dlop.DLJob"),
    "crds --framework dlop:DLJob": (1, "'dlop:DLJob' must be a class that extends dlop.DLJob and declares a job_type"),
    "new-framework": (2, "the following arguments are required: NAME."),
    "new-framework ring": (2, "JobType kind 'ring' must be in camel case, like 'RingJob'."),
    "new-framework RingJob --group here": (2, "JobType group 'here' must be a domain, like 'example.org'."),
    f"install --kubeconfig {NOWHERE}": (1, f"kubeconfig {NOWHERE} does not exist: set KUBECONFIG to one that does, or pass its path"),
    f"manifests --check {NOWHERE}": (1, f"Run: python -m dlop manifests --out {NOWHERE}"),
    "scale job": (2, "the following arguments are required: ROLE=N."),
    "scale job worker": (2, "'worker' does not say how many replicas a role is to have. Write it as ROLE=N, for example worker=3."),
    "scale job worker=-1": (2, "'worker=-1' does not say how many replicas"),
    "scale job worker=1 Worker=2": (2, "Worker is named twice; keep one of the two."),
    "wait job --timeout soon": (2, "argument --timeout: 'soon' is no length of time; write it as 90s, 5m or 1h30m."),
    "wait job --for ever": (
        2,
        "argument --for: invalid choice: 'ever' (choose from 'succeeded', 'failed', 'finished', 'running', 'deleted')",
    ),
    "logs job --tail many": (2, "argument --tail: 'many' is no number of lines."),
    "logs": (2, "the following arguments are required: [KIND/]JOB."),
    "get -o yaml": (2, "argument -o/--output: invalid choice: 'yaml' (choose from 'text', 'json')"),
    f"submit {NOWHERE}": (2, f"{NOWHERE} cannot be read: No such file or directory."),
    f"describe job --kubeconfig {NOWHERE}": (1, f"kubeconfig {NOWHERE} does not exist: set KUBECONFIG to one that does, or pass its path"),
    "completion": (2, "the following arguments are required: {bash,zsh,fish}."),
    "completion tcsh": (2, "invalid choice: 'tcsh' (choose from 'bash', 'zsh', 'fish')"),
    "deploy --image": (2, "argument --image: expected one argument."),
    "deploy --with mpi,gnag": (1, "there are no rights of the name 'gnag'; these there are: mpi, gang"),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_called_wrongly_is_told_with_the_way_out(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, expected = WRONG[words]
    assert main(words.split()) == code
    said = capsys.readouterr().err
    assert said.startswith(f"dlop {words.split(maxsplit=1)[0]}: ")
    assert expected in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_variable_that_makes_no_sense_is_told_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DLOP_WORKERS", "many")
    assert main(["run"]) == 2
    assert capsys.readouterr().err == "dlop run: DLOP_WORKERS is 'many'; write a whole number\n"
