"""`dlop local FILE`: the verdict is the job's own, nothing stays behind, and every way to end has its exit status."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from pathlib import Path

import pytest

from tests.local.local_jobs import job, written
from tests.local.local_program import SIGINT, SIGKILL, SIGTERM, left_behind, processes_with, run, running, terminal, until_gone


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",), ("--network", "host")])
async def test_a_job_that_succeeds_ends_with_0_and_leaves_nothing_behind(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    file = written(tmp_path, job(scheduler="sleep 0.2", worker="true", workers=2))
    ended = await run(file, *isolation, folder=tmp_path)
    assert ended.code == 0, ended
    assert ended.err == ""
    assert ended.out.splitlines()[-1].startswith("MXJob small Succeeded after ")
    assert "scheduler-0: Succeeded (exit code 0)" in ended.out
    assert left_behind(tmp_path) == []


async def test_a_job_that_fails_ends_with_1_and_says_why_and_what_was_written_last(tmp_path: Path) -> None:
    ended = await run(written(tmp_path, job(scheduler="echo the disk is full; exit 3")), folder=tmp_path)
    assert ended.code == 1
    last = ended.out.splitlines()[-1]
    assert last.startswith("MXJob small Failed after ")
    assert "exit code 3" in last
    assert "--logs" in last
    assert "scheduler-0 | the disk is full" in ended.out
    assert left_behind(tmp_path) == []


async def test_logs_are_shown_with_who_wrote_them(tmp_path: Path) -> None:
    file = written(tmp_path, job(scheduler="echo one; sleep 0.2; echo two >&2", worker="echo I am $DMLC_ROLE", workers=2))
    ended = await run(file, "--logs", folder=tmp_path)
    assert ended.code == 0
    written_by = [line.partition("|") for line in ended.out.splitlines()]
    assert [text for who, _, text in written_by if who.strip() == "scheduler-0"] == [" one", " two"]
    assert sorted(who.strip() for who, _, text in written_by if text == " I am worker") == ["worker-0", "worker-1"]


async def test_json_is_one_document_with_the_whole_story(tmp_path: Path) -> None:
    ended = await run(written(tmp_path, job(scheduler="exit 4")), "--output", "json", folder=tmp_path)
    assert ended.code == 1
    told = json.loads(ended.out)
    assert (told["exitCode"], told["verdict"]) == (1, "Failed")
    (seen,) = told["jobs"]
    assert (seen["kind"], seen["name"], seen["phase"]) == ("MXJob", "small", "Failed")
    assert seen["lastFailure"]["exitCode"] == 4
    assert [(each["role"], each["index"], each["exitCode"]) for each in seen["replicas"]] == [("SCHEDULER", 0, 4)]


async def test_what_a_job_needs_is_made_first_and_namespaces_by_themselves(tmp_path: Path) -> None:
    wanted = job(scheduler='test "$WORD" = hello && test "$(cat /words/word)" = hello', namespace="far-away")
    container = wanted["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"configMapRef": {"name": "words"}}]
    container["volumeMounts"] = [{"name": "words", "mountPath": "/words"}]
    secret = {"secret": {"secretName": "words", "items": [{"key": "word", "path": "word"}]}}
    wanted["spec"]["replicaSpecs"][0]["template"]["spec"]["volumes"] = [{"name": "words", **secret}]
    metadata = {"name": "words", "namespace": "far-away"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"WORD": "hello"}}
    words = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"word": "hello"}}
    ended = await run(written(tmp_path, wanted, config, words), folder=tmp_path)
    assert ended.code == 0, ended
    assert "MXJob small in far-away Succeeded" in ended.out


async def test_several_jobs_end_with_the_worst_of_their_verdicts(tmp_path: Path) -> None:
    first, second = written(tmp_path, job("good"), name="a.yaml"), written(tmp_path, job("bad", scheduler="exit 1"), name="b.yaml")
    ended = await run(first, second, folder=tmp_path)
    assert ended.code == 1
    assert ended.out.splitlines()[-1].startswith("2 jobs: Failed after ")
    assert "MXJob bad" in ended.out.splitlines()[-1]


async def test_a_job_that_does_not_end_in_time_ends_with_1_and_says_what_it_waits_for(tmp_path: Path) -> None:
    wanted = job()
    wanted["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    ended = await run(written(tmp_path, wanted), "--gpus", "2", "--timeout", "1s", folder=tmp_path)
    assert ended.code == 1
    assert "TimedOut" in ended.out.splitlines()[-1]
    assert "Insufficient nvidia.com/gpu" in ended.out.splitlines()[-1]
    assert left_behind(tmp_path) == []


async def test_an_image_that_nobody_knows_says_which_line_to_add(tmp_path: Path) -> None:
    wanted = job()
    del wanted["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["command"]
    ended = await run(written(tmp_path, wanted), "--timeout", "1s", folder=tmp_path)
    assert ended.code == 1
    assert "--image none=PATH" in ended.out


async def test_an_image_can_be_a_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os; print('trained as', os.environ['DMLC_ROLE'])")
    wanted = job()
    del wanted["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["command"]
    ended = await run(written(tmp_path, wanted), "--logs", "--image", f"none={script}", folder=tmp_path)
    assert ended.code == 0, ended
    assert "scheduler-0 | trained as scheduler" in ended.out


async def test_what_is_kept_has_the_logs_and_a_kubeconfig_for_nobody_else(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    # The worker is deleted when the scheduler is done, and its log is kept all the same.
    file = written(tmp_path, job(scheduler="sleep 0.3; echo kept", worker="echo kept too; trap exit TERM; sleep 1000 & wait"))
    ended = await run(file, "--keep", "--folder", str(place), folder=tmp_path)
    assert ended.code == 0
    assert str(place / "node" / "logs") in ended.out.splitlines()[-1]
    assert (place / "kubeconfig").stat().st_mode & 0o777 == 0o600
    kept = [path.read_text() for path in (place / "node" / "logs").rglob("*.log")]
    assert sorted(text.split(" F ")[1].strip() for text in kept) == ["kept", "kept too"]
    assert "a kind is looked after" in (place / "dlop.log").read_text()


async def test_a_folder_that_was_there_stays_and_only_what_is_ours_goes(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "notes").write_text("mine")
    assert (await run(written(tmp_path, job()), "--folder", str(place), folder=tmp_path)).code == 0
    assert [path.name for path in place.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("nowhere.yaml",), "nowhere.yaml cannot be read: No such file or directory"),
        (("--gpus", "many"), "--gpus"),
        (("--memory", "much"), "--memory much: a size such as 8Gi is expected"),
        (("--timeout", "soon"), "'soon' is no length of time"),
        (("--image", "name"), "--image name: NAME=PATH is expected"),
        (("--network", "own", "--no-namespaces"), "--network own"),
        (("--colour",), "--colour"),
    ],
)
async def test_bad_usage_ends_with_2_and_a_sentence(tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    ended = await run(*words, folder=tmp_path)
    assert ended.code == 2
    assert ended.err.startswith("dlop local: ")
    assert complaint in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("number", "code"), [(SIGINT, 130), (SIGTERM, 143)])
@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)])
async def test_an_interrupted_job_leaves_no_process_and_no_file(tmp_path: Path, number: int, code: int, isolation: tuple[str, ...]) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    file = written(tmp_path, job(scheduler=f"echo {mark}; sleep 1000", worker=f"setsid sleep 1000 & : {mark}; wait", workers=2))
    async with running(file, "--logs", *isolation, folder=tmp_path) as program:
        await program.hears(f"scheduler-0 +. {mark}")
        await program.hears("MXJob small: Running")
        assert processes_with(mark)
        ended = await program.ends(number)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    await until_gone(mark)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)])
async def test_a_dlop_that_is_killed_takes_all_its_processes_along(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    file = written(tmp_path, job(scheduler=f"setsid sleep 1000 & echo {mark}; sleep 1000"))
    async with running(file, "--logs", *isolation, folder=tmp_path, DLOP_TEST_MARK=mark) as program:
        await program.hears(f"scheduler-0 +. {mark}")
        await program.ends(SIGKILL)
    await until_gone(mark)


async def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    files = [written(tmp_path, job("same", scheduler="echo here; sleep 1000"), name=f"{name}.yaml") for name in "ab"]
    async with running(files[0], "--logs", folder=tmp_path) as first, running(files[1], "--logs", folder=tmp_path) as second:
        places = await asyncio.gather(first.kubeconfig(), second.kubeconfig())
        assert places[0] != places[1]
        for program in (first, second):
            await program.hears("scheduler-0 . here")
        assert (await first.ends(SIGINT)).code == 130
        assert second.process.returncode is None
        assert (await second.ends(SIGINT)).code == 130
    assert left_behind(tmp_path) == []


async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "one"
    async with running("--folder", str(place), folder=tmp_path) as first:
        await first.kubeconfig()
        second = await run("--folder", str(place), folder=tmp_path)
        assert second.code == 1
        assert "in use by another `dlop local`" in second.err
        assert (await first.ends(SIGINT)).code == 130
    assert not place.exists()


async def test_a_terminal_shows_a_table_that_follows_the_job(tmp_path: Path) -> None:
    file = written(tmp_path, job(scheduler="echo hello; sleep 0.5", worker="sleep 0.2", workers=2))
    async with terminal(file, "--logs", folder=tmp_path) as screen:
        code = await screen.ends()
    assert code == 0, screen.said
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.said)
    assert "scheduler-0 | hello" in shown
    assert re.search(r"ROLE +INDEX +PHASE +RESTARTS +ADDRESS +EXIT CODE", shown)
    assert re.search(r"WORKER +1 +Running +- +\d+\.\d+\.\d+\.\d+ +-", shown)
    last = shown[shown.rindex("MXJob small  Succeeded") :]
    assert re.search(r"WORKER +1 +Succeeded +- +\S+ +0", last)
    assert "0 of 3 running, 3 succeeded" in last
    took = re.search(r"3 succeeded  (.+? s)\s", last)
    assert took is not None
    assert last.rstrip().splitlines()[-1].startswith(f"MXJob small Succeeded after {took[1]}")


async def test_ctrl_c_at_a_terminal_cleans_up(tmp_path: Path) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    async with terminal(written(tmp_path, job(scheduler=f"echo {mark}; sleep 1000")), "--logs", folder=tmp_path) as screen:
        await screen.hears(mark)
        screen.type(b"\x03")
        assert await screen.ends() == 130
    assert "Traceback" not in screen.said
    await until_gone(mark)
    assert left_behind(tmp_path) == []


async def test_mistakes_as_json(tmp_path: Path) -> None:
    wrong = job()
    wrong["spec"]["replicaSpecs"][0]["replicas"] = "one"
    ended = await run(written(tmp_path, wrong), "--output", "json", folder=tmp_path)
    told = json.loads(ended.out)
    assert ended.code == told["exitCode"] == 2
    assert [line.split(": ")[1] for line in told["mistakes"]] == ["spec.replicaSpecs[0].replicas"]


async def test_a_job_that_is_deleted_as_soon_as_it_is_done_has_its_verdict_all_the_same(tmp_path: Path) -> None:
    wanted = job()
    wanted["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": 0}
    ended = await run(written(tmp_path, wanted), "--logs", folder=tmp_path)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1].startswith("MXJob small Succeeded after ")


async def test_a_reader_who_has_seen_enough_ends_it_in_good_order(tmp_path: Path) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    file = written(tmp_path, job(scheduler=f"while true; do echo {mark}; sleep 0.01; done"))
    async with running(file, "--logs", folder=tmp_path) as program:
        await program.hears(mark)
        reader = program.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        reader.close()
        async with asyncio.timeout(60):
            assert await program.process.wait() == 1
        assert program.process.stderr is not None
        assert await program.process.stderr.read() == b""
    await until_gone(mark)
    assert left_behind(tmp_path) == []


async def test_of_a_long_log_no_line_is_lost(tmp_path: Path) -> None:
    ended = await run(written(tmp_path, job(scheduler="seq 1 100000")), "--logs", folder=tmp_path)
    assert ended.code == 0
    lines = [line.removeprefix("scheduler-0 | ") for line in ended.out.splitlines() if line.startswith("scheduler-0 | ")]
    assert lines == [str(number) for number in range(1, 100_001)]


async def test_what_pods_make_of_being_told_to_go_at_the_end_is_told_by_their_exit_codes(tmp_path: Path) -> None:
    # Of the workers the first one is content with that.
    worker = "trap 'exit $((${HOSTNAME##*-} * 7))' TERM; while true; do sleep 0.01; done"
    wanted = job(scheduler="sleep 1", worker=f"export HOSTNAME=$(hostname); {worker}", workers=2)
    ended = await run(written(tmp_path, wanted), "--output", "json", folder=tmp_path)
    (seen,) = json.loads(ended.out)["jobs"]
    assert [(each["state"], each["exitCode"]) for each in seen["replicas"]] == [("Succeeded", 0), ("Succeeded", 0), ("Gone", 7)]


async def test_what_the_cluster_will_not_have_is_told_in_a_sentence(tmp_path: Path) -> None:
    # Nobody could see it in the manifests: both kinds of events are kept in the same place.
    place = {"name": "told", "namespace": "default"}
    about = {"kind": "Pod", "name": "any", "namespace": "default"}
    core = {"apiVersion": "v1", "kind": "Event", "metadata": place, "involvedObject": about, "reason": "Told"}
    teller = {"reportingController": "example.org/teller", "reportingInstance": "teller-0", "action": "Telling"}
    new = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": place, "regarding": about, "reason": "Told", **teller}
    new |= {"type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z"}
    ended = await run(written(tmp_path, core, new, job()), folder=tmp_path)
    assert ended.code == 1
    assert ended.err.startswith("dlop local: ")
    assert "Event told in the namespace default already" in ended.err
    assert ended.err.count("\n") == 1
    assert left_behind(tmp_path) == []


async def test_a_job_that_was_over_in_time_has_its_verdict_whatever_its_pods_do_afterwards(tmp_path: Path) -> None:
    file = written(tmp_path, job(scheduler="sleep 0.5", worker="trap '' TERM; while true; do sleep 0.1; done"))
    ended = await run(file, "--timeout", "2s", folder=tmp_path)
    *lines, last = ended.out.splitlines()
    # A machine that is busy may not have come to its end; then nothing else was said before.
    verdict = "Succeeded" if any(line.endswith("  MXJob small: Succeeded") for line in lines) else "TimedOut"
    assert last.startswith(f"MXJob small {verdict} after ")
    assert "Terminating" not in ended.out


async def test_a_pod_that_does_not_want_to_end_keeps_nobody_waiting(tmp_path: Path) -> None:
    # The scheduler decides; the worker is told to end, for which it has a grace period of 30 seconds, and does not.
    file = written(tmp_path, job(scheduler="sleep 0.5", worker="trap '' TERM; while true; do sleep 0.1; done"))
    began = time.monotonic()
    ended = await run(file, "--logs", folder=tmp_path)
    assert ended.code == 0
    assert time.monotonic() - began < 20
