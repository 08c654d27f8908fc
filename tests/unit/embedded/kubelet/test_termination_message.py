from __future__ import annotations

import os
from pathlib import Path

from dlop.embedded.kubelet.logs import STDOUT, ContainerLog
from dlop.embedded.kubelet.runtime.base import ExitStatus
from dlop.embedded.kubelet.termination_message import termination_message, termination_reason

_FALLBACK_TO_LOGS = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def test_the_termination_reason() -> None:
    assert termination_reason(ExitStatus(0)) == "Completed"
    assert termination_reason(ExitStatus(1)) == "Error"
    assert termination_reason(ExitStatus(137, signal=9)) == "Error"
    assert termination_reason(ExitStatus(137, signal=9, out_of_memory=True)) == "OOMKilled"


def test_the_log_fallback_has_at_most_eighty_lines_and_two_kilobytes(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    log.write(b"".join(b"%d\n" % number for number in range(200)), STDOUT)
    message = termination_message(_FALLBACK_TO_LOGS, tmp_path / "none", exit_code=1, log=log)
    assert message.split() == [str(number) for number in range(120, 200)]
    log.write(b"x" * 5000 + b"\n", STDOUT)
    assert len(termination_message(_FALLBACK_TO_LOGS, tmp_path / "none", exit_code=1, log=log)) == 2048
    log.close()


def test_a_message_in_the_file_has_precedence_over_the_log(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    log.write(b"from the log\n", STDOUT)
    log.close()
    (tmp_path / "message").write_text("from the file")
    assert termination_message(_FALLBACK_TO_LOGS, tmp_path / "message", exit_code=1, log=log) == "from the file"


def test_a_directory_is_not_a_message(tmp_path: Path) -> None:
    assert termination_message({}, tmp_path, exit_code=1, log=None) == ""


def test_a_pipe_or_link_in_place_of_the_message_is_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "another").write_text("another file")
    (tmp_path / "link").symlink_to(tmp_path / "another")
    for name in ("pipe", "link", "."):
        assert termination_message({}, tmp_path / name, exit_code=0, log=None) == ""
