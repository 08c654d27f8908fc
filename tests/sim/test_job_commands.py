"""The job commands as a user runs them: over HTTPS, with an operator and scripted pods."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.registry import Registry
from dlop.jobs.errors import WaitFailedError
from dlop.jobs.lookup import find_job, parse_job_reference
from dlop.jobs.wait import WaitCondition, wait_for_job
from dlop.kube.resources import NAMESPACES, PODS
from tests.frameworks.elastic_manifests import elastic_job
from tests.sim.cli_env import CliEnv, cli_env
from tests.sim.crew_job import CrewJob, crew, mpba_mxjob, mxjob

pytestmark = pytest.mark.machine


@pytest.fixture
async def env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[CliEnv]:
    async with cli_env(tmp_path, capsys) as environment:
        yield environment


@pytest.fixture
async def env_without_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[CliEnv]:
    async with cli_env(tmp_path, capsys, operator=False) as environment:
        yield environment


# --- get -------------------------------------------------------------------------------------------------------------


async def test_get_shows_all_kinds_in_one_table(env: CliEnv) -> None:
    env.kit.script.when("bad-*").run().fail(exit_code=3)
    await env.submit_and_wait(crew("bad"), "Failed")
    await env.submit_and_wait(mxjob("mx"), "Running")
    await env.submit_and_wait(mpba_mxjob("mx"), "Running")
    result = await env.dlop("get")
    assert (result.code, result.err) == (0, "")
    assert [row[:4] for row in result.rows] == [
        ["bad", "CrewJob", "Failed", "Chief 0/1 Worker 0/2"],
        ["mx", "MXJob.fioravanzo.org", "Running", "SCHEDULER 1/1 SERVER 1/1 WORKER 1/1"],
        ["mx", "MXJob.mpba.fbk.eu", "Running", "SCHEDULER 1/1 SERVER 1/1 WORKER 1/1"],
    ]
    assert [row[0] for row in (await env.dlop("get", "crew")).rows] == ["bad"]
    assert [view["apiVersion"] for view in (await env.dlop("get", "mxjobs.mpba.fbk.eu/mx", "-o", "json")).json] == ["mpba.fbk.eu/v1"]


async def test_get_lists_one_namespace_or_all(env: CliEnv) -> None:
    await env.kit.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await env.submit_and_wait(crew("here"), "Running")
    await env.submit_and_wait(crew("there", namespace="team"), "Running")
    assert [row[0] for row in (await env.dlop("get")).rows] == ["here"]
    assert [row[0] for row in (await env.dlop("get", "-n", "team")).rows] == ["there"]
    assert [row[:2] for row in (await env.dlop("get", "-A")).rows] == [["default", "here"], ["team", "there"]]
    empty = await env.dlop("get", "-n", "kube-public")
    assert (empty.code, empty.out, empty.err) == (0, "", "no jobs found in the namespace kube-public\n")


async def test_a_cluster_without_crds_is_reported_with_the_command_to_install_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cli_env(tmp_path, capsys, kinds=()) as bare:
        for arguments in (("get",), ("describe", "x"), ("submit", bare.write_file(crew("x")))):
            result = await bare.dlop(*arguments)
            assert result.code == 1
            assert "the cluster does not serve" in result.err
            assert "`dlop install` installs the CRD" in result.err


async def test_kinds_that_the_user_may_not_read_are_skipped_and_named(env: CliEnv) -> None:
    await env.submit_and_wait(crew("one"), "Running")
    forbid = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not"}
    faults = env.kit.cluster.faults
    for plural in ("tfjobs", "mxjobs"):
        faults.fail_before(forbid, match=RequestMatch(plural=plural), times=1000)
    result = await env.dlop("get")
    assert (result.code, [row[0] for row in result.rows]) == (0, ["one"])
    assert result.err.splitlines() == [
        f"skipping {kind}: you are not allowed to list it" for kind in ("mxjobs.fioravanzo.org", "mxjobs.mpba.fbk.eu", "tfjobs.mpba.fbk.eu")
    ]
    assert (await env.dlop("describe", "one")).code == 0
    assert (
        "You are not allowed to list mxjobs.fioravanzo.org, mxjobs.mpba.fbk.eu, tfjobs.mpba.fbk.eu there."
        in (await env.dlop("describe", "two")).err
    )
    faults.fail_before(forbid, match=RequestMatch(plural="crewjobs"), times=1000)
    assert [(result.code, result.err) for result in [await env.dlop("get")]] == [(1, "dlop get: you may not\n")]


async def test_get_watch_prints_a_line_for_every_change(env: CliEnv) -> None:
    env.kit.script.when("one-*").run().until_released().succeed()
    await env.submit_and_wait(crew("one"), "Running")
    async with env.run_in_background("get", "--watch") as command:
        await command.wait_for_output(r"one +CrewJob +Running")
        for pod in ("one-chief-0", "one-worker-0", "one-worker-1"):
            env.kit.kubelet.release(f"default/{pod}")
        await command.wait_for_output(r"one +CrewJob +Succeeded +Chief 1/1 Worker 2/2")
        await env.delete_job("one")
        await command.wait_for_output("CrewJob one deleted")
    assert command.text.count("NAME") == 1


# --- lookup ----------------------------------------------------------------------------------------------------------


async def test_unknown_and_ambiguous_names_are_reported_with_suggestions(env: CliEnv) -> None:
    await env.kit.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    for manifest in (crew("good"), mxjob("mx"), mpba_mxjob("mx"), crew("far", namespace="team")):
        await env.kit.submit(manifest)
    expected = {
        "god": "job god not found in the namespace default. Did you mean good?",
        "zzz": "job zzz not found in the namespace default. Existing jobs: good, mx, mx.",
        "mx": "2 jobs in the namespace default are named mx; use mxjobs.fioravanzo.org/mx or mxjobs.mpba.fbk.eu/mx.",
        "far": "job far not found in the namespace default, but it exists in team: add -n team.",
        "mxjob/good": "job good not found in the namespace default.",
        "boat/good": "unknown kind 'boat'; known kinds: crewjobs.crew.dlop.dev, elasticdljobs.training.kubedl.io, ",
        "crew/": "'crew/' has no job name; use crew/NAME.",
    }
    for name, message in expected.items():
        result = await env.dlop("describe", name)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"dlop describe: {message}")


# --- describe --------------------------------------------------------------------------------------------------------


async def test_describe_shows_the_history_and_the_last_failure(env: CliEnv) -> None:
    env.kit.script.when("bad-worker-1").run().fail(exit_code=3, message="no more disk")
    await env.submit_and_wait(crew("bad"), "Failed")
    await env.wait_for_event("bad", "Failed")
    result = await env.dlop("describe", "bad")
    assert result.code == 0
    page = result.out
    assert "  Phase:        Failed\n" in page
    assert "Last failure\n  Worker 1 (pod bad-worker-1 on node scripted-node) terminated with exit code 3 (Error): no more disk" in page
    history = [line.split()[2] for line in page.partition("History\n")[2].splitlines()]
    assert [reason for reason in history if reason in ("Submitted", "CreatedPods", "Failed")] == ["Submitted", "CreatedPods", "Failed"]
    assert re.search(r"Worker +1 +Failed +0 +10\.\S+ +3 ", page)
    assert "Waiting" not in page


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("unschedulable", "pods stuck-chief-0, stuck-worker-0, stuck-worker-1: Unschedulable"),
        ("image_pull_error", 'ImagePullBackOff: Back-off pulling image "scripted"'),
        ("config_error", 'CreateContainerConfigError: configmap "scripted" not found'),
    ],
)
async def test_describe_shows_why_a_job_is_blocked(env: CliEnv, step: str, message: str) -> None:
    getattr(env.kit.script.when("stuck-*"), step)()
    job = await env.kit.submit(crew("stuck"))
    await env.kit.until(job, reached=lambda view: len(view.pods) == 3 and "dlop" in view.status and all(map(_is_stuck, view.pods.values())))
    result = await env.dlop("describe", "stuck")
    waits = result.out.partition("Waiting\n")[2].partition("\n\n")[0]
    assert message in waits


def _is_stuck(pod: dict[str, object]) -> bool:
    return "reason" in str(pod["status"])


async def test_describe_shows_the_git_repositories_and_why_they_cannot_be_cloned(env: CliEnv) -> None:
    sources = [
        {"source": "https://example.org/train.git", "branch": "main"},
        {"source": "https://example.org/data.git", "destPath": "in/data"},
    ]
    job = await env.kit.submit(crew("coded", policy={"codeSync": sources}))
    await env.kit.until(job, reached=lambda view: view.condition("Blocked") is not None)
    page = (await env.dlop("describe", "coded")).out
    assert "  Code:         https://example.org/train.git (branch main) in train; https://example.org/data.git in in/data\n" in page
    assert "Waiting\n  spec.runPolicy.codeSync[0]: there is no image to clone https://example.org/train.git; set `image`" in page


async def test_describe_reports_a_job_without_an_operator(env_without_operator: CliEnv) -> None:
    await env_without_operator.kit.submit(crew("alone"))
    result = await env_without_operator.dlop("describe", "alone")
    assert "  Phase:        NotReconciled\n" in result.out
    assert "Waiting\n  no operator has reconciled the job yet; check that one is running (`dlop run` or `dlop deploy`)" in result.out


async def test_describe_has_json_output(env: CliEnv) -> None:
    env.kit.script.when("*-worker-0").run().fail(exit_code=7)
    await env.submit_and_wait(crew("bad"), "Failed")
    job = (await env.dlop("describe", "bad", "-o", "json")).json["job"]
    assert (job["phase"], job["lastFailure"]["exitCode"], job["lastFailure"]["pod"]) == ("Failed", 7, "bad-worker-0")
    assert {role["name"]: role["failed"] for role in job["roles"]} == {"Chief": 0, "Worker": 1}
    assert job["history"][0]["reason"] == "Submitted"


# --- suspend, resume, scale and delete -------------------------------------------------------------------------------


async def test_suspend_deletes_the_pods_and_resume_creates_them_again(env: CliEnv) -> None:
    for manifest in (crew("one"), mxjob("two")):
        await env.submit_and_wait(manifest, "Running")
        name = manifest["metadata"]["name"]
        job = env.kit.job(f"default/{name}")
        assert (await env.dlop("suspend", name)).err.endswith(f"{name} suspended\n")
        await env.kit.until(job, phase="Suspended", reached=lambda view: not view.pods, within_seconds=30)
        assert (await env.dlop("suspend", name)).err.endswith(f"{name} is already suspended\n")
        assert (await env.dlop("resume", name)).err.endswith(f"{name} resumed\n")
        await env.kit.until(job, phase="Running", within_seconds=30)
        assert (await env.dlop("resume", name)).err.endswith(f"{name} is not suspended\n")


async def test_a_kind_without_a_suspend_field_cannot_be_suspended(env: CliEnv) -> None:
    await env.submit_and_wait(mpba_mxjob("mx"), "Running")
    for command, participle in (("suspend", "suspended"), ("resume", "resumed")):
        result = await env.dlop(command, "mx")
        assert result.code == 1
        assert f"MXJob mx cannot be {participle}: the spec of a mpba.fbk.eu/v1 MXJob has no field for it." in result.err
        assert "`dlop scale mx ROLE=0` deletes the pods of a role" in result.err


@pytest.mark.parametrize("make", [crew, mxjob, mpba_mxjob])
async def test_roles_are_scaled_in_every_dialect(env: CliEnv, make: object) -> None:
    assert callable(make)
    await env.submit_and_wait(make("job"), "Running")
    result = await env.dlop("scale", "job", "worker=3")
    assert (result.code, result.err.endswith("job scaled to worker 3\n")) == (0, True)
    job = env.kit.job("default/job")
    await env.kit.until(job, reached=lambda view: sum("worker" in name for name in view.pods) == 3, within_seconds=30)
    assert (await env.dlop("scale", "job", "WORKER=3")).err.endswith("job already has WORKER 3\n")
    assert (await env.dlop("get", "-o", "json")).json[0]["roles"][-1]["desired"] == 3


async def test_an_invalid_scale_is_rejected_with_the_field(env: CliEnv) -> None:
    env.kit.script.when("done-*").run().succeed()
    await env.submit_and_wait(crew("done"), "Succeeded")
    for manifest in (crew("one"), mxjob("two"), mpba_mxjob("three")):
        await env.kit.submit(manifest)
    expected = {
        "one chief=2": "CrewJob one cannot be scaled: spec.replicaSpecs.Chief.replicas: must be from 0 to 1, got 2.",
        "one pilot=2": "CrewJob one has no role pilot; a crew.dlop.dev/v1 CrewJob has Chief, Worker.",
        "two scheduler=2": "MXJob two cannot be scaled: spec.replicaSpecs[0].replicas: must be exactly 1, got 2.",
        "three scheduler=0": "MXJob three cannot be scaled: spec[0].replicas: must be exactly 1, got 0.",
        "one worker=20000": "spec.replicaSpecs.Worker.replicas: must be from 0 to 10000, got 20000.",
        "done worker=1": "CrewJob done cannot be scaled: it has already succeeded. `dlop submit` starts a new job.",
    }
    for arguments, message in expected.items():
        result = await env.dlop("scale", *arguments.split())
        assert result.code == 1
        assert message in result.err


async def test_a_role_without_a_template_cannot_be_scaled(env: CliEnv) -> None:
    manifest = crew("one")
    del manifest["spec"]["replicaSpecs"]["Chief"]
    await env.kit.submit(manifest)
    result = await env.dlop("scale", "one", "chief=1")
    assert (result.code, "CrewJob one has no Chief: the role is missing in its spec and needs a pod template." in result.err) == (1, True)


async def test_a_job_with_a_master_is_scaled_by_a_plan_and_shows_its_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cli_env(tmp_path, capsys, kinds=[ElasticJob]) as env:
        await env.submit_and_wait(elastic_job("one"), "Running")
        result = await env.dlop("scale", "one", "worker=2")
        assert (result.code, result.err) == (0, "ElasticJob one scaled to worker 2\n")
        await env.kit.until("default/one", reached=lambda job: len(job.pods) == 3, within_seconds=30)
        assert [row[3] for row in (await env.dlop("get", "one")).rows] == ["dlrover-master 1/1 worker 2/2"]
        described = (await env.dlop("describe", "one")).out
        assert "one-edljob-worker-1" in described
        assert "Scaled worker from 0 to 2 with scale plan one-manual-" in described
        rejected = await env.dlop("scale", "one", "ps=1")
        assert (rejected.code, "ps: cannot be scaled; only the master scales roles other than worker" in rejected.err) == (1, True)


async def test_a_plan_that_fails_is_an_error_of_dlop_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cli_env(tmp_path, capsys, kinds=[ElasticJob]) as env:
        await env.submit_and_wait(elastic_job("one", platform="pyk8s"), "Running")
        assert (await env.dlop("scale", "one", "worker=1")).code == 0
        await env.kit.until("default/one", reached=lambda job: len(job.pods) == 2, within_seconds=30)
        result = await env.dlop("scale", "one", "worker=0")
        assert (result.code, "the master of this job would create them again" in result.err) == (1, True)


async def test_delete_removes_the_pods_and_can_wait(env: CliEnv) -> None:
    await env.submit_and_wait(crew("one"), "Running")
    await env.submit_and_wait(crew("two"), "Running")
    typo = await env.dlop("delete", "one", "tow")
    assert (typo.code, "Did you mean two?" in typo.err) == (1, True)
    assert env.kit.job("default/one").exists
    result = await env.dlop("delete", "one", "two", "--wait", "--timeout", "30s")
    assert (result.code, result.err) == (0, "CrewJob one deleted\nCrewJob two deleted\n")
    await env.kit.until("default/one", reached=lambda _: not env.object_names(PODS), within_seconds=30)


# --- submit ----------------------------------------------------------------------------------------------------------


async def test_submit_creates_all_objects_of_a_file(env: CliEnv) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"epochs": "90"}}
    result = await env.dlop("submit", env.write_file(settings, crew("one"), mxjob("two")))
    assert (result.code, result.err) == (
        0,
        "ConfigMap settings in default created\nCrewJob one in default created\nMXJob two in default created\n",
    )
    again = await env.dlop("submit", env.write_file(crew("one")))
    assert (again.code, again.out) == (1, "")
    assert "job.yaml:4: CrewJob one already exists in the namespace default; delete it (`dlop delete one`)" in again.err


async def test_submit_wait_returns_the_result_of_the_job(env: CliEnv) -> None:
    env.kit.script.when("good-*").run().succeed()
    env.kit.script.when("bad-*").run().fail(exit_code=3)
    good = await env.dlop("submit", env.write_file(crew("good")), "--wait")
    assert good.code == 0
    assert "CrewJob good: Succeeded" in good.out
    assert re.search(r"^CrewJob good: Succeeded after \S+\.$", good.err, re.MULTILINE)
    bad = await env.dlop("submit", env.write_file(crew("bad")), "--wait")
    assert bad.code == 1
    assert re.search(r"CrewJob bad: Failed after \S+: CrewJob bad has failed: .* terminated with exit code 3", bad.err)
    assert "`dlop describe bad -n default` shows details" in bad.err


async def test_ctrl_c_leaves_the_job_running(env: CliEnv) -> None:
    async with env.run_in_background("submit", env.write_file(crew("long")), "--wait") as command:
        await command.wait_for_output("CrewJob long: Running")
        command.process.send_signal(signal.SIGINT)
        assert await command.process.wait() == 130
    assert "the submitted jobs keep running: `dlop get` shows them, `dlop delete` deletes them" in command.text
    assert "Traceback" not in command.text
    assert env.object_names(CrewJob.job_type.resource) == ["long"]


async def test_unreadable_logs_do_not_hide_the_result_of_the_job(env: CliEnv) -> None:
    """The scripted kubelet has no logs."""
    env.kit.script.when("good-*").run().succeed()
    result = await env.dlop("submit", env.write_file(crew("good")), "--logs")
    assert result.code == 0
    assert result.out.count("the log cannot be read: ") == 3
    assert "CrewJob good: Succeeded after" in result.err


async def test_lines_about_replicas_of_several_jobs_start_with_the_name_of_the_job(env: CliEnv) -> None:
    env.kit.script.when("*").run().succeed()
    result = await env.dlop("submit", env.write_file(crew("one", workers=1), crew("two", workers=1)), "--logs")
    assert result.code == 0
    replicas = {f"{job}/{replica}" for job in ("one", "two") for replica in ("chief-0", "worker-0")}
    assert {line.split("|")[0].strip() for line in result.out.splitlines() if " | " in line} == replicas
    assert set(re.findall(r"^ +[\d.]+s  (\S+-0): ", result.out, re.MULTILINE)) == replicas


async def test_errors_in_a_manifest_are_reported_with_file_and_line(env: CliEnv) -> None:
    invalid = crew("one")
    invalid["spec"]["replicaSpecs"]["Worker"]["replicas"] = -1
    invalid["spec"]["replicaSpecs"]["Chief"]["restartPolicy"] = "Sometimes"
    other = crew("two", namespace="team")
    result = await env.dlop("submit", "-n", "default", env.write_file(invalid, other))
    assert result.code == 2
    assert re.findall(r"job\.yaml:(\d+): ([\w.]+):", result.err) == [
        ("9", "spec.replicaSpecs.Chief.restartPolicy"),
        ("16", "spec.replicaSpecs.Worker.replicas"),
        ("28", "metadata.namespace"),
    ]
    assert not env.object_names(CrewJob.job_type.resource)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", "job.yaml:1: invalid YAML"),
        ("", "job.yaml is empty; it must contain a manifest."),
        ("- 1", "job.yaml:1: a manifest must be an object with apiVersion, kind and metadata."),
        ("kind: CrewJob", "job.yaml:1: apiVersion: is required."),
        ("apiVersion: crew.dlop.dev/v2\nkind: CrewJob", "did you mean crew.dlop.dev/v1 CrewJob?"),
        ("apiVersion: v1\nkind: Boat\nmetadata: {name: x}", "job.yaml:2: the cluster does not serve v1 Boat."),
        ("apiVersion: v1\nkind: Pod", "job.yaml:1: metadata.name: is required."),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {color: red}", "spec.color: unknown field"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER}", "job.yaml:3: metadata.name: "),
    ],
)
async def test_an_invalid_file_is_reported_with_the_line(env_without_operator: CliEnv, text: str, message: str) -> None:
    path = env_without_operator.folder / "job.yaml"
    path.write_text(text)
    result = await env_without_operator.dlop("submit", str(path))
    assert result.code == 2
    assert message in result.err


async def test_an_unknown_field_is_rejected(env: CliEnv) -> None:
    invalid = crew("one")
    invalid["spec"]["replicaSpecs"]["Worker"]["replica"] = 3
    invalid["spec"]["runPolicy"] = {"backofLimit": 3}
    file = env.write_file(invalid)
    result = await env.dlop("submit", file)
    assert result.code == 2
    lines = {path: int(line) for line, path in re.findall(r"job\.yaml:(\d+): ([\w.]+): unknown field", result.err)}
    assert lines == {
        "spec.replicaSpecs.Worker.replica": env.line_number("replica: 3"),
        "spec.runPolicy.backofLimit": env.line_number("backofLimit: 3"),
    }


# --- wait ------------------------------------------------------------------------------------------------------------


async def test_wait_returns_when_the_condition_is_met_or_cannot_be_met(env: CliEnv) -> None:
    env.kit.script.when("good-*").run().until_released().succeed()
    env.kit.script.when("bad-*").run().fail(exit_code=3)
    await env.submit_and_wait(crew("good"), "Running")
    await env.submit_and_wait(crew("bad"), "Failed")
    assert (await env.dlop("wait", "good", "--for", "running")).err == "CrewJob good is Running\n"
    waiting = asyncio.create_task(env.dlop("wait", "good"))
    for pod in ("good-chief-0", "good-worker-0", "good-worker-1"):
        env.kit.kubelet.release(f"default/{pod}")
    assert (await waiting).code == 0
    assert (await env.dlop("wait", "good", "--for", "finished")).code == 0
    assert (await env.dlop("wait", "bad", "--for", "finished")).code == 0
    assert (await env.dlop("wait", "bad", "--for", "failed")).code == 0
    impossible = await env.dlop("wait", "bad")
    assert (impossible.code, "CrewJob bad is Failed; the condition succeeded can no longer be met." in impossible.err) == (1, True)


async def test_wait_times_out_and_reports_the_phase(env: CliEnv) -> None:
    await env.submit_and_wait(crew("slow"), "Running")
    result = await env.dlop("wait", "slow", "--timeout", "0.2s")
    assert result.code == 1
    assert "CrewJob slow had not succeeded after 0.2 s; its phase is Running. `dlop describe slow` shows why." in result.err


async def test_wait_fails_when_the_job_is_deleted(env: CliEnv) -> None:
    await env.submit_and_wait(crew("one"), "Running")
    job = await find_job(env.kit.client, parse_job_reference("one", Registry([CrewJob])), namespace="default")
    waiting = asyncio.create_task(wait_for_job(env.kit.client, job, WaitCondition.SUCCEEDED, timeout_seconds=30))
    assert (await env.dlop("delete", "one")).code == 0
    with pytest.raises(WaitFailedError, match=r"CrewJob one was deleted; the condition succeeded can no longer be met\."):
        await waiting


async def test_ctrl_c_exits_with_code_130(env: CliEnv) -> None:
    await env.submit_and_wait(crew("one"), "Running")
    async with env.run_in_background("get", "--watch") as command:
        await command.wait_for_output("Running")
        command.process.send_signal(signal.SIGINT)
        assert await command.process.wait() == 130
    assert "Traceback" not in command.text
