from __future__ import annotations

import os
from pathlib import Path

from dlop.embedded.kubelet.logs import STDOUT, ContainerLog
from dlop.embedded.kubelet.runtime.base import Exit
from dlop.embedded.kubelet.termination_message import reason_of, termination_message

_FALLS_BACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def test_the_reason_of_an_end() -> None:
    assert reason_of(Exit(0)) == "Completed"
    assert reason_of(Exit(1)) == "Error"
    assert reason_of(Exit(137, signal=9)) == "Error"
    assert reason_of(Exit(137, signal=9, out_of_memory=True)) == "OOMKilled"


def test_the_end_of_the_log_is_eighty_lines_and_two_kilobytes_at_most(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    log.write(b"".join(b"%d\n" % number for number in range(200)), STDOUT)
    message = termination_message(_FALLS_BACK, tmp_path / "none", exit_code=1, log=log)
    assert message.split() == [str(number) for number in range(120, 200)]
    log.write(b"x" * 5000 + b"\n", STDOUT)
    assert len(termination_message(_FALLS_BACK, tmp_path / "none", exit_code=1, log=log)) == 2048
    log.end()


def test_a_message_in_the_file_is_worth_more_than_the_log(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    log.write(b"from the log\n", STDOUT)
    log.end()
    (tmp_path / "message").write_text("from the file")
    assert termination_message(_FALLS_BACK, tmp_path / "message", exit_code=1, log=log) == "from the file"


def test_what_is_no_file_any_more_is_no_message(tmp_path: Path) -> None:
    assert termination_message({}, tmp_path, exit_code=1, log=None) == ""


def test_whatever_a_container_puts_in_place_of_its_message_is_not_waited_for_and_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "another").write_text("not its own")
    (tmp_path / "link").symlink_to(tmp_path / "another")
    for name in ("pipe", "link", "."):
        assert termination_message({}, tmp_path / name, exit_code=0, log=None) == ""
