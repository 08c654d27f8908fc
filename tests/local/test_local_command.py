"""`dlop local FILE`: exit codes, output and cleanup."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from pathlib import Path

import pytest

from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import (
    SIGINT,
    SIGKILL,
    SIGTERM,
    find_processes,
    leftover_files,
    run_local,
    start_local,
    start_on_terminal,
    wait_until_exited,
)


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",), ("--network", "host")])
async def test_a_job_that_succeeds_exits_with_0_and_leaves_no_files(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    file = write_manifests(tmp_path, job(scheduler="sleep 0.2", worker="true", workers=2))
    result = await run_local(file, *isolation, folder=tmp_path)
    assert result.code == 0, result
    assert result.err == ""
    assert result.out.splitlines()[-1].startswith("MXJob small Succeeded after ")
    assert "scheduler-0: Succeeded (exit code 0)" in result.out
    assert leftover_files(tmp_path) == []


async def test_a_job_that_fails_exits_with_1_and_prints_the_cause_and_the_end_of_the_log(tmp_path: Path) -> None:
    result = await run_local(write_manifests(tmp_path, job(scheduler="echo the disk is full; exit 3")), folder=tmp_path)
    assert result.code == 1
    last = result.out.splitlines()[-1]
    assert last.startswith("MXJob small Failed after ")
    assert "exit code 3" in last
    assert "--logs" in last
    assert "scheduler-0 | the disk is full" in result.out
    assert leftover_files(tmp_path) == []


async def test_log_lines_are_prefixed_with_their_replica(tmp_path: Path) -> None:
    file = write_manifests(tmp_path, job(scheduler="echo one; sleep 0.2; echo two >&2", worker="echo I am $DMLC_ROLE", workers=2))
    result = await run_local(file, "--logs", folder=tmp_path)
    assert result.code == 0
    lines = [line.partition("|") for line in result.out.splitlines()]
    assert [text for replica, _, text in lines if replica.strip() == "scheduler-0"] == [" one", " two"]
    assert sorted(replica.strip() for replica, _, text in lines if text == " I am worker") == ["worker-0", "worker-1"]


async def test_log_lines_of_several_jobs_are_prefixed_with_the_job_and_its_replica(tmp_path: Path) -> None:
    file = write_manifests(tmp_path, job("one", scheduler="echo $HOSTNAME"), job("two", scheduler="echo $HOSTNAME; exit 3"))
    for flags in (("--logs",), ()):
        result = await run_local(file, *flags, folder=tmp_path)
        assert result.code == 1
        logs = dict(line.replace(" ", "").split("|") for line in result.out.splitlines() if " | " in line)
        # Without --logs, the end of the log of the failed replica is printed.
        assert set(logs) == {"two/scheduler-0", *(["one/scheduler-0"] if flags else [])}
        assert all(pod.startswith(prefix.split("/")[0]) for prefix, pod in logs.items())


async def test_json_output_is_one_document(tmp_path: Path) -> None:
    result = await run_local(write_manifests(tmp_path, job(scheduler="exit 4")), "--output", "json", folder=tmp_path)
    assert result.code == 1
    document = json.loads(result.out)
    assert (document["exitCode"], document["verdict"]) == (1, "Failed")
    (view,) = document["jobs"]
    assert (view["kind"], view["name"], view["phase"]) == ("MXJob", "small", "Failed")
    assert view["lastFailure"]["exitCode"] == 4
    assert [(replica["role"], replica["index"], replica["exitCode"]) for replica in view["replicas"]] == [("SCHEDULER", 0, 4)]


async def test_dependencies_are_created_before_the_job_and_namespaces_automatically(tmp_path: Path) -> None:
    body = job(scheduler='test "$WORD" = hello && test "$(cat /words/word)" = hello', namespace="far-away")
    container = body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"configMapRef": {"name": "words"}}]
    container["volumeMounts"] = [{"name": "words", "mountPath": "/words"}]
    secret = {"secret": {"secretName": "words", "items": [{"key": "word", "path": "word"}]}}
    body["spec"]["replicaSpecs"][0]["template"]["spec"]["volumes"] = [{"name": "words", **secret}]
    metadata = {"name": "words", "namespace": "far-away"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"WORD": "hello"}}
    words = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"word": "hello"}}
    result = await run_local(write_manifests(tmp_path, body, config, words), folder=tmp_path)
    assert result.code == 0, result
    assert "MXJob small in far-away Succeeded" in result.out


async def test_the_worst_of_several_jobs_decides_the_exit_code(tmp_path: Path) -> None:
    first, second = (
        write_manifests(tmp_path, job("good"), name="a.yaml"),
        write_manifests(tmp_path, job("bad", scheduler="exit 1"), name="b.yaml"),
    )
    result = await run_local(first, second, folder=tmp_path)
    assert result.code == 1
    assert result.out.splitlines()[-1].startswith("2 jobs: Failed after ")
    assert "MXJob bad" in result.out.splitlines()[-1]


async def test_a_timeout_exits_with_1_and_prints_the_pending_reason(tmp_path: Path) -> None:
    body = job()
    body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    result = await run_local(write_manifests(tmp_path, body), "--gpus", "2", "--timeout", "1s", folder=tmp_path)
    assert result.code == 1
    assert "TimedOut" in result.out.splitlines()[-1]
    assert "Insufficient nvidia.com/gpu" in result.out.splitlines()[-1]
    assert leftover_files(tmp_path) == []


async def test_an_unmapped_image_is_reported_with_the_flag_to_map_it(tmp_path: Path) -> None:
    body = job()
    del body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["command"]
    result = await run_local(write_manifests(tmp_path, body), "--timeout", "1s", folder=tmp_path)
    assert result.code == 1
    assert "--image none=PATH" in result.out


async def test_an_image_can_be_a_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os; print('trained as', os.environ['DMLC_ROLE'])")
    body = job()
    del body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["command"]
    result = await run_local(write_manifests(tmp_path, body), "--logs", "--image", f"none={script}", folder=tmp_path)
    assert result.code == 0, result
    assert "scheduler-0 | trained as scheduler" in result.out


async def test_a_kept_working_directory_has_the_logs_and_a_private_kubeconfig(tmp_path: Path) -> None:
    workdir = tmp_path / "kept"
    # The worker is deleted when the scheduler has finished. Its log is kept too.
    file = write_manifests(tmp_path, job(scheduler="sleep 0.3; echo kept", worker="echo kept too; trap exit TERM; sleep 1000 & wait"))
    result = await run_local(file, "--keep", "--folder", str(workdir), folder=tmp_path)
    assert result.code == 0
    assert str(workdir / "node" / "logs") in result.out.splitlines()[-1]
    assert (workdir / "kubeconfig").stat().st_mode & 0o777 == 0o600
    logs = [path.read_text() for path in (workdir / "node" / "logs").rglob("*.log")]
    assert sorted(text.split(" F ")[1].strip() for text in logs) == ["kept", "kept too"]
    assert "started controller" in (workdir / "dlop.log").read_text()


async def test_other_files_in_an_existing_working_directory_are_kept(tmp_path: Path) -> None:
    workdir = tmp_path / "mine"
    workdir.mkdir()
    (workdir / "notes").write_text("mine")
    assert (await run_local(write_manifests(tmp_path, job()), "--folder", str(workdir), folder=tmp_path)).code == 0
    assert [path.name for path in workdir.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.yaml",), "nowhere.yaml cannot be read: No such file or directory"),
        (("--gpus", "many"), "--gpus"),
        (("--gpus", "-1"), "--gpus must not be negative, and --cpus must be a positive number."),
        (("--cpus", "0"), "--gpus must not be negative, and --cpus must be a positive number."),
        (("--memory", "much"), "--memory must be a quantity such as 8Gi, got much"),
        (("--timeout", "soon"), "'soon' is not a duration"),
        (("--image", "name"), "--image name: must have the form NAME=PATH"),
        (("--network", "own", "--no-namespaces"), "--network own"),
        (("--colour",), "--colour"),
    ],
)
async def test_invalid_usage_exits_with_2(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = await run_local(*words, folder=tmp_path)
    assert result.code == 2
    assert result.err.startswith("dlop local: ")
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("number", "code"), [(SIGINT, 130), (SIGTERM, 143)])
@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)])
async def test_an_interrupted_job_leaves_no_processes_and_files(tmp_path: Path, number: int, code: int, isolation: tuple[str, ...]) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    file = write_manifests(tmp_path, job(scheduler=f"echo {mark}; sleep 1000", worker=f"setsid sleep 1000 & : {mark}; wait", workers=2))
    async with start_local(file, "--logs", *isolation, folder=tmp_path) as dlop:
        await dlop.wait_for_output(f"scheduler-0 +. {mark}")
        await dlop.wait_for_output("MXJob small: Running")
        assert find_processes(mark)
        result = await dlop.wait_for_exit(number)
    assert result.code == code, result
    assert "Traceback" not in result.err
    await wait_until_exited(mark)
    assert leftover_files(tmp_path) == []


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)])
async def test_all_processes_exit_when_dlop_is_killed(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    file = write_manifests(tmp_path, job(scheduler=f"setsid sleep 1000 & echo {mark}; sleep 1000"))
    async with start_local(file, "--logs", *isolation, folder=tmp_path, DLOP_TEST_MARK=mark) as dlop:
        await dlop.wait_for_output(f"scheduler-0 +. {mark}")
        await dlop.wait_for_exit(SIGKILL)
    await wait_until_exited(mark)


async def test_two_sessions_are_independent(tmp_path: Path) -> None:
    files = [write_manifests(tmp_path, job("same", scheduler="echo here; sleep 1000"), name=f"{name}.yaml") for name in "ab"]
    async with start_local(files[0], "--logs", folder=tmp_path) as first, start_local(files[1], "--logs", folder=tmp_path) as second:
        kubeconfigs = await asyncio.gather(first.kubeconfig(), second.kubeconfig())
        assert kubeconfigs[0] != kubeconfigs[1]
        for dlop in (first, second):
            await dlop.wait_for_output("scheduler-0 . here")
        assert (await first.wait_for_exit(SIGINT)).code == 130
        assert second.process.returncode is None
        assert (await second.wait_for_exit(SIGINT)).code == 130
    assert leftover_files(tmp_path) == []


async def test_a_working_directory_in_use_is_rejected(tmp_path: Path) -> None:
    workdir = tmp_path / "one"
    async with start_local("--folder", str(workdir), folder=tmp_path) as first:
        await first.kubeconfig()
        second = await run_local("--folder", str(workdir), folder=tmp_path)
        assert second.code == 1
        assert "in use by another `dlop local`" in second.err
        assert (await first.wait_for_exit(SIGINT)).code == 130
    assert not workdir.exists()


async def test_a_terminal_shows_a_live_table(tmp_path: Path) -> None:
    file = write_manifests(tmp_path, job(scheduler="echo hello; sleep 0.5", worker="sleep 0.2", workers=2))
    async with start_on_terminal(file, "--logs", folder=tmp_path) as terminal:
        code = await terminal.wait_for_exit()
    assert code == 0, terminal.output
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.output)
    assert "scheduler-0 | hello" in shown
    assert re.search(r"ROLE +INDEX +PHASE +RESTARTS +ADDRESS +EXIT CODE", shown)
    assert re.search(r"WORKER +1 +Running +- +\d+\.\d+\.\d+\.\d+ +-", shown)
    last = shown[shown.rindex("MXJob small  Succeeded") :]
    assert re.search(r"WORKER +1 +Succeeded +- +\S+ +0", last)
    assert "0 of 3 running, 3 succeeded" in last
    elapsed = re.search(r"3 succeeded  (.+? s)\s", last)
    assert elapsed is not None
    assert last.rstrip().splitlines()[-1].startswith(f"MXJob small Succeeded after {elapsed[1]}")


async def test_ctrl_c_on_a_terminal_cleans_up(tmp_path: Path) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    async with start_on_terminal(
        write_manifests(tmp_path, job(scheduler=f"echo {mark}; sleep 1000")), "--logs", folder=tmp_path
    ) as terminal:
        await terminal.wait_for_output(mark)
        terminal.type(b"\x03")
        assert await terminal.wait_for_exit() == 130
    assert "Traceback" not in terminal.output
    await wait_until_exited(mark)
    assert leftover_files(tmp_path) == []


async def test_validation_errors_as_json(tmp_path: Path) -> None:
    invalid = job()
    invalid["spec"]["replicaSpecs"][0]["replicas"] = "one"
    result = await run_local(write_manifests(tmp_path, invalid), "--output", "json", folder=tmp_path)
    document = json.loads(result.out)
    assert result.code == document["exitCode"] == 2
    assert [line.split(": ")[1] for line in document["errors"]] == ["spec.replicaSpecs[0].replicas"]


async def test_a_job_that_is_deleted_when_it_has_finished_has_a_result(tmp_path: Path) -> None:
    body = job()
    body["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": 0}
    result = await run_local(write_manifests(tmp_path, body), "--logs", folder=tmp_path)
    assert result.code == 0, result
    assert result.out.splitlines()[-1].startswith("MXJob small Succeeded after ")


async def test_a_closed_output_pipe_stops_the_session_cleanly(tmp_path: Path) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    file = write_manifests(tmp_path, job(scheduler=f"while true; do echo {mark}; sleep 0.01; done"))
    async with start_local(file, "--logs", folder=tmp_path) as dlop:
        await dlop.wait_for_output(mark)
        reader = dlop.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        reader.close()
        async with asyncio.timeout(60):
            assert await dlop.process.wait() == 1
        assert dlop.process.stderr is not None
        assert await dlop.process.stderr.read() == b""
    await wait_until_exited(mark)
    assert leftover_files(tmp_path) == []


async def test_a_long_log_is_printed_completely(tmp_path: Path) -> None:
    result = await run_local(write_manifests(tmp_path, job(scheduler="seq 1 100000")), "--logs", folder=tmp_path)
    assert result.code == 0
    lines = [line.removeprefix("scheduler-0 | ") for line in result.out.splitlines() if line.startswith("scheduler-0 | ")]
    assert lines == [str(number) for number in range(1, 100_001)]


async def test_the_exit_codes_of_pods_that_are_deleted_at_the_end_are_reported(tmp_path: Path) -> None:
    # The first worker exits with 0 on SIGTERM, the second one with 7.
    worker = "trap 'exit $((${HOSTNAME##*-} * 7))' TERM; while true; do sleep 0.01; done"
    body = job(scheduler="sleep 1", worker=f"export HOSTNAME=$(hostname); {worker}", workers=2)
    result = await run_local(write_manifests(tmp_path, body), "--output", "json", folder=tmp_path)
    (view,) = json.loads(result.out)["jobs"]
    states = [(replica["state"], replica["exitCode"]) for replica in view["replicas"]]
    assert states == [("Succeeded", 0), ("Succeeded", 0), ("Gone", 7)]


async def test_an_object_that_the_cluster_rejects_is_reported(tmp_path: Path) -> None:
    # The manifests are valid, but both event APIs share the same storage.
    metadata = {"name": "same", "namespace": "default"}
    pod = {"kind": "Pod", "name": "any", "namespace": "default"}
    core = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": pod, "reason": "Tested"}
    reporter = {"reportingController": "example.org/test", "reportingInstance": "test-0", "action": "Testing"}
    new = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "regarding": pod, "reason": "Tested", **reporter}
    new |= {"type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z"}
    result = await run_local(write_manifests(tmp_path, core, new, job()), folder=tmp_path)
    assert result.code == 1
    assert result.err.startswith("dlop local: ")
    assert "Event same already exists in the namespace default" in result.err
    assert result.err.count("\n") == 1
    assert leftover_files(tmp_path) == []


async def test_a_job_that_finished_in_time_has_its_result_even_if_its_pods_keep_running(tmp_path: Path) -> None:
    file = write_manifests(tmp_path, job(scheduler="sleep 0.5", worker="trap '' TERM; while true; do sleep 0.1; done"))
    result = await run_local(file, "--timeout", "2s", folder=tmp_path)
    *lines, last = result.out.splitlines()
    # On a busy machine the job may not finish in time.
    verdict = "Succeeded" if any(line.endswith("  MXJob small: Succeeded") for line in lines) else "TimedOut"
    assert last.startswith(f"MXJob small {verdict} after ")
    assert "Terminating" not in result.out


async def test_a_pod_that_ignores_sigterm_does_not_delay_the_exit(tmp_path: Path) -> None:
    # The scheduler decides about success. The worker has a grace period of 30 seconds.
    file = write_manifests(tmp_path, job(scheduler="sleep 0.5", worker="trap '' TERM; while true; do sleep 0.1; done"))
    started_at = time.monotonic()
    result = await run_local(file, "--logs", folder=tmp_path)
    assert result.code == 0
    assert time.monotonic() - started_at < 20
