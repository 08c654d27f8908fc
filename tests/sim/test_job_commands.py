"""The commands about jobs, as a user calls them: over HTTPS, with an operator and scripted pods behind the server."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlop.embedded.apiserver.faults import Match
from dlop.frameworks.registry import Registry
from dlop.jobs.errors import OutOfReachError
from dlop.jobs.lookup import find_job, read_job_reference
from dlop.jobs.wait import Goal, wait_for
from dlop.kube.resources import NAMESPACES, PODS
from tests.sim.job_world import CrewJob, JobWorld, crew, job_world, listed, mxjob


@pytest.fixture
async def world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[JobWorld]:
    async with job_world(tmp_path, capsys) as found:
        yield found


@pytest.fixture
async def unattended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[JobWorld]:
    """The same without an operator."""
    async with job_world(tmp_path, capsys, operator=False) as found:
        yield found


# --- get -----------------------------------------------------------------------------------------------------------------


async def test_get_shows_all_kinds_in_one_table(world: JobWorld) -> None:
    world.kit.script.when("bad-*").run().fail(exit_code=3)
    await world.is_in(crew("bad"), "Failed")
    await world.is_in(mxjob("mx"), "Running")
    await world.is_in(listed("mx"), "Running")
    said = await world.dlop("get")
    assert (said.code, said.err) == (0, "")
    assert [row[:4] for row in said.rows] == [
        ["bad", "CrewJob", "Failed", "Chief 0/1 Worker 0/2"],
        ["mx", "MXJob.fioravanzo.org", "Running", "SCHEDULER 1/1 SERVER 1/1 WORKER 1/1"],
        ["mx", "MXJob.mpba.fbk.eu", "Running", "SCHEDULER 1/1 SERVER 1/1 WORKER 1/1"],
    ]
    assert [row[0] for row in (await world.dlop("get", "crew")).rows] == ["bad"]
    assert [view["apiVersion"] for view in (await world.dlop("get", "mxjobs.mpba.fbk.eu/mx", "-o", "json")).json] == ["mpba.fbk.eu/v1"]


async def test_get_looks_into_one_namespace_or_into_all(world: JobWorld) -> None:
    await world.kit.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await world.is_in(crew("here"), "Running")
    await world.is_in(crew("there", namespace="team"), "Running")
    assert [row[0] for row in (await world.dlop("get")).rows] == ["here"]
    assert [row[0] for row in (await world.dlop("get", "-n", "team")).rows] == ["there"]
    assert [row[:2] for row in (await world.dlop("get", "-A")).rows] == [["default", "here"], ["team", "there"]]
    nothing = await world.dlop("get", "-n", "kube-public")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "there are no jobs in the namespace kube-public\n")


async def test_a_cluster_without_the_definitions_is_told_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with job_world(tmp_path, capsys, kinds=()) as bare:
        for words in (("get",), ("describe", "x"), ("submit", bare.file(crew("x")))):
            said = await bare.dlop(*words)
            assert said.code == 1
            assert "the cluster does not know" in said.err
            assert "`dlop install` brings the definition" in said.err


async def test_kinds_that_the_user_may_not_read_are_left_out_and_named(world: JobWorld) -> None:
    await world.is_in(crew("one"), "Running")
    forbid = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not"}
    faults = world.kit.cluster.faults
    for plural in ("tfjobs", "mxjobs"):
        faults.fail_before(forbid, match=Match(plural=plural), times=1000)
    said = await world.dlop("get")
    assert (said.code, [row[0] for row in said.rows]) == (0, ["one"])
    assert said.err.splitlines() == [
        f"{kind} is left out: you may not read it here" for kind in ("mxjobs.fioravanzo.org", "mxjobs.mpba.fbk.eu", "tfjobs.mpba.fbk.eu")
    ]
    assert (await world.dlop("describe", "one")).code == 0
    assert (
        "You may not read mxjobs.fioravanzo.org, mxjobs.mpba.fbk.eu, tfjobs.mpba.fbk.eu there." in (await world.dlop("describe", "two")).err
    )
    faults.fail_before(forbid, match=Match(plural="crewjobs"), times=1000)
    assert [(said.code, said.err) for said in [await world.dlop("get")]] == [(1, "dlop get: you may not\n")]


async def test_get_watch_has_a_line_for_every_change(world: JobWorld) -> None:
    world.kit.script.when("one-*").run().until_told().succeed()
    await world.is_in(crew("one"), "Running")
    async with world.beside("get", "--watch") as watching:
        await watching.until_printed(r"one +CrewJob +Running")
        for pod in ("one-chief-0", "one-worker-0", "one-worker-1"):
            world.kit.kubelet.tell(f"default/{pod}")
        await watching.until_printed(r"one +CrewJob +Succeeded +Chief 1/1 Worker 2/2")
        await world.delete("one")
        await watching.until_printed("CrewJob one is gone")
    assert watching.text.count("NAME") == 1


# --- finding -------------------------------------------------------------------------------------------------------------


async def test_names_that_are_missing_or_ambiguous_are_told_with_the_choices(world: JobWorld) -> None:
    await world.kit.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    for manifest in (crew("good"), mxjob("mx"), listed("mx"), crew("far", namespace="team")):
        await world.kit.submit(manifest)
    expected = {
        "god": "there is no job god in the namespace default. Did you mean good?",
        "zzz": "there is no job zzz in the namespace default. It has good, mx, mx.",
        "mx": "2 jobs in the namespace default are named mx: write mxjobs.fioravanzo.org/mx or mxjobs.mpba.fbk.eu/mx.",
        "far": "there is no job far in the namespace default, but there is one in team: add -n team.",
        "mxjob/good": "there is no job good in the namespace default.",
        "boat/good": "'boat' is not the name of a kind. Write one of: crewjobs.crew.dlop.dev, jaxjobs.kubeflow.org",
        "crew/": "'crew/' names no job; write it as crew/NAME.",
    }
    for name, sentence in expected.items():
        said = await world.dlop("describe", name)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith(f"dlop describe: {sentence}")


# --- describe ------------------------------------------------------------------------------------------------------------


async def test_describe_tells_what_happened_in_order_and_how_it_failed(world: JobWorld) -> None:
    world.kit.script.when("bad-worker-1").run().fail(exit_code=3, message="no more disk")
    await world.is_in(crew("bad"), "Failed")
    await world.told("bad", "Failed")
    said = await world.dlop("describe", "bad")
    assert said.code == 0
    page = said.out
    assert "  Phase:        Failed\n" in page
    assert "Last failure\n  Worker 1 (pod bad-worker-1 on node scripted-node) ended with exit code 3 (Error): no more disk" in page
    history = [line.split()[2] for line in page.partition("History\n")[2].splitlines()]
    assert [reason for reason in history if reason in ("Submitted", "CreatedPods", "Failed")] == ["Submitted", "CreatedPods", "Failed"]
    assert re.search(r"Worker +1 +Failed +0 +10\.\S+ +3 ", page)
    assert "Waits for" not in page


@pytest.mark.parametrize(
    ("happens", "sentence"),
    [
        ("unschedulable", "pods stuck-chief-0, stuck-worker-0, stuck-worker-1: Unschedulable"),
        ("image_pull_error", 'ImagePullBackOff: Back-off pulling image "scripted"'),
        ("config_error", 'CreateContainerConfigError: configmap "scripted" not found'),
    ],
)
async def test_describe_tells_what_a_job_waits_for(world: JobWorld, happens: str, sentence: str) -> None:
    getattr(world.kit.script.when("stuck-*"), happens)()
    job = await world.kit.submit(crew("stuck"))
    await world.kit.until(
        job, reached=lambda view: len(view.pods) == 3 and "dlop" in view.status and all(map(_is_stuck, view.pods.values()))
    )
    said = await world.dlop("describe", "stuck")
    waits = said.out.partition("Waits for\n")[2].partition("\n\n")[0]
    assert sentence in waits


def _is_stuck(pod: dict[str, object]) -> bool:
    return "reason" in str(pod["status"])


async def test_a_job_that_nobody_looks_after_says_so(unattended: JobWorld) -> None:
    await unattended.kit.submit(crew("alone"))
    said = await unattended.dlop("describe", "alone")
    assert "  Phase:        Unseen\n" in said.out
    assert "Waits for\n  no operator has looked at it yet; is one running (`dlop run`, or `dlop deploy`)" in said.out


async def test_describe_for_machines_has_everything(world: JobWorld) -> None:
    world.kit.script.when("*-worker-0").run().fail(exit_code=7)
    await world.is_in(crew("bad"), "Failed")
    found = (await world.dlop("describe", "bad", "-o", "json")).json["job"]
    assert (found["phase"], found["lastFailure"]["exitCode"], found["lastFailure"]["pod"]) == ("Failed", 7, "bad-worker-0")
    assert {role["name"]: role["failed"] for role in found["roles"]} == {"Chief": 0, "Worker": 1}
    assert found["history"][0]["reason"] == "Submitted"


# --- changing ------------------------------------------------------------------------------------------------------------


async def test_suspend_takes_the_pods_away_and_resume_brings_them_back(world: JobWorld) -> None:
    for manifest in (crew("one"), mxjob("two")):
        await world.is_in(manifest, "Running")
        name = manifest["metadata"]["name"]
        job = world.kit.job(f"default/{name}")
        assert (await world.dlop("suspend", name)).err.endswith(f"{name} suspended\n")
        await world.kit.until(job, phase="Suspended", reached=lambda view: not view.pods, within_seconds=30)
        assert (await world.dlop("suspend", name)).err.endswith(f"{name} is suspended already\n")
        assert (await world.dlop("resume", name)).err.endswith(f"{name} resumed\n")
        await world.kit.until(job, phase="Running", within_seconds=30)
        assert (await world.dlop("resume", name)).err.endswith(f"{name} was not suspended\n")


async def test_a_kind_without_room_for_it_cannot_be_suspended_and_says_why(world: JobWorld) -> None:
    await world.is_in(listed("mx"), "Running")
    for command, word in (("suspend", "suspended"), ("resume", "resumed")):
        said = await world.dlop(command, "mx")
        assert said.code == 1
        assert f"MXJob mx cannot be {word}: the spec of a mpba.fbk.eu/v1 MXJob has no room for it." in said.err
        assert "`dlop scale mx ROLE=0` ends the pods of a role" in said.err


@pytest.mark.parametrize("make", [crew, mxjob, listed])
async def test_roles_are_scaled_in_every_dialect(world: JobWorld, make: object) -> None:
    assert callable(make)
    await world.is_in(make("job"), "Running")
    said = await world.dlop("scale", "job", "worker=3")
    assert (said.code, said.err.endswith("job scaled to worker 3\n")) == (0, True)
    job = world.kit.job("default/job")
    await world.kit.until(job, reached=lambda view: sum("worker" in name for name in view.pods) == 3, within_seconds=30)
    assert (await world.dlop("scale", "job", "WORKER=3")).err.endswith("job has WORKER 3 already\n")
    assert (await world.dlop("get", "-o", "json")).json[0]["roles"][-1]["wanted"] == 3


async def test_a_scale_that_makes_no_sense_is_refused_with_the_field(world: JobWorld) -> None:
    world.kit.script.when("done-*").run().succeed()
    await world.is_in(crew("done"), "Succeeded")
    for manifest in (crew("one"), mxjob("two"), listed("three")):
        await world.kit.submit(manifest)
    expected = {
        "one chief=2": "CrewJob one cannot be scaled to that: spec.replicaSpecs.Chief.replicas: must be from 0 to 1, not 2.",
        "one pilot=2": "CrewJob one has no role pilot; a crew.dlop.dev/v1 CrewJob has Chief, Worker.",
        "two scheduler=2": "MXJob two cannot be scaled to that: spec.replicaSpecs[0].replicas: must be exactly 1, not 2.",
        "three scheduler=0": "MXJob three cannot be scaled to that: spec[0].replicas: must be exactly 1, not 0.",
        "one worker=20000": "spec.replicaSpecs.Worker.replicas: must be from 0 to 10000, not 20000.",
        "done worker=1": "CrewJob done cannot be scaled, for it has succeeded already; `dlop submit` starts another one.",
    }
    for words, sentence in expected.items():
        said = await world.dlop("scale", *words.split())
        assert said.code == 1
        assert sentence in said.err


async def test_a_role_that_the_job_does_not_have_needs_a_template(world: JobWorld) -> None:
    manifest = crew("one")
    del manifest["spec"]["replicaSpecs"]["Chief"]
    await world.kit.submit(manifest)
    said = await world.dlop("scale", "one", "chief=1")
    assert (said.code, "CrewJob one has no Chief: the role is not in its spec, where it needs a template." in said.err) == (1, True)


async def test_delete_takes_the_pods_along_and_waits_if_asked(world: JobWorld) -> None:
    await world.is_in(crew("one"), "Running")
    await world.is_in(crew("two"), "Running")
    slip = await world.dlop("delete", "one", "tow")
    assert (slip.code, "Did you mean two?" in slip.err) == (1, True)
    assert world.kit.job("default/one").exists
    said = await world.dlop("delete", "one", "two", "--wait", "--timeout", "30s")
    assert (said.code, said.err) == (0, "CrewJob one deleted\nCrewJob two deleted\n")
    await world.kit.until("default/one", reached=lambda _: not world.names_of(PODS), within_seconds=30)


# --- submit --------------------------------------------------------------------------------------------------------------


async def test_submit_creates_all_that_a_file_has(world: JobWorld) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"epochs": "90"}}
    said = await world.dlop("submit", world.file(settings, crew("one"), mxjob("two")))
    assert (said.code, said.err) == (
        0,
        "ConfigMap settings in default created\nCrewJob one in default created\nMXJob two in default created\n",
    )
    again = await world.dlop("submit", world.file(crew("one")))
    assert (again.code, again.out) == (1, "")
    assert "job.yaml:4: there is a CrewJob one in the namespace default already; `dlop delete one` makes room" in again.err


async def test_submit_and_wait_ends_with_the_verdict_of_the_job(world: JobWorld) -> None:
    world.kit.script.when("good-*").run().succeed()
    world.kit.script.when("bad-*").run().fail(exit_code=3)
    good = await world.dlop("submit", world.file(crew("good")), "--wait")
    assert good.code == 0
    assert "CrewJob good: Succeeded" in good.out
    assert re.search(r"^CrewJob good: Succeeded after \S+\.$", good.err, re.MULTILINE)
    bad = await world.dlop("submit", world.file(crew("bad")), "--wait")
    assert bad.code == 1
    assert re.search(r"CrewJob bad: Failed after \S+: CrewJob bad has failed: .* ended with exit code 3", bad.err)
    assert "`dlop describe bad -n default` tells more" in bad.err


async def test_ctrl_c_leaves_the_job_and_says_so(world: JobWorld) -> None:
    async with world.beside("submit", world.file(crew("long")), "--wait") as staying:
        await staying.until_printed("CrewJob long: Running")
        staying.process.send_signal(signal.SIGINT)
        assert await staying.process.wait() == 130
    assert "what was submitted goes on: `dlop get` shows it, `dlop delete` ends it" in staying.text
    assert "Traceback" not in staying.text
    assert world.names_of(CrewJob.job_type.resource) == ["long"]


async def test_logs_that_cannot_be_read_do_not_keep_the_job_from_its_verdict(world: JobWorld) -> None:
    """The scripted kubelet has no logs."""
    world.kit.script.when("good-*").run().succeed()
    said = await world.dlop("submit", world.file(crew("good")), "--logs")
    assert said.code == 0
    assert said.out.count("its log cannot be read: ") == 3
    assert "CrewJob good: Succeeded after" in said.err


async def test_whatever_is_wrong_with_a_manifest_is_told_by_file_and_line(world: JobWorld) -> None:
    wrong = crew("one")
    wrong["spec"]["replicaSpecs"]["Worker"]["replicas"] = -1
    wrong["spec"]["replicaSpecs"]["Chief"]["restartPolicy"] = "Sometimes"
    other = crew("two", namespace="team")
    said = await world.dlop("submit", "-n", "default", world.file(wrong, other))
    assert said.code == 2
    assert re.findall(r"job\.yaml:(\d+): ([\w.]+):", said.err) == [
        ("9", "spec.replicaSpecs.Chief.restartPolicy"),
        ("16", "spec.replicaSpecs.Worker.replicas"),
        ("28", "metadata.namespace"),
    ]
    assert not world.names_of(CrewJob.job_type.resource)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: b: c", "job.yaml:1: this is no YAML"),
        ("", "job.yaml is empty; it must have the manifest of a job."),
        ("- 1", "job.yaml:1: a manifest must be an object with apiVersion, kind and metadata."),
        ("kind: CrewJob", "job.yaml:1: apiVersion: is missing."),
        ("apiVersion: crew.dlop.dev/v2\nkind: CrewJob", "did you mean crew.dlop.dev/v1 CrewJob?"),
        ("apiVersion: v1\nkind: Boat\nmetadata: {name: x}", "job.yaml:2: the cluster does not know v1 Boat."),
        ("apiVersion: v1\nkind: Pod", "job.yaml:1: metadata.name: is missing."),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {color: red}", "spec.color: the kind has no such field"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER}", "job.yaml:3: metadata.name: "),
    ],
)
async def test_a_file_that_cannot_be_submitted_is_told_with_the_place(unattended: JobWorld, text: str, sentence: str) -> None:
    path = unattended.folder / "job.yaml"
    path.write_text(text)
    said = await unattended.dlop("submit", str(path))
    assert said.code == 2
    assert sentence in said.err


async def test_a_misspelt_field_is_refused_and_not_dropped(world: JobWorld) -> None:
    wrong = crew("one")
    wrong["spec"]["replicaSpecs"]["Worker"]["replica"] = 3
    wrong["spec"]["runPolicy"] = {"backofLimit": 3}
    file = world.file(wrong)
    said = await world.dlop("submit", file)
    assert said.code == 2
    found = {path: int(line) for line, path in re.findall(r"job\.yaml:(\d+): ([\w.]+): the kind has no such field", said.err)}
    assert found == {
        "spec.replicaSpecs.Worker.replica": world.line_of("replica: 3"),
        "spec.runPolicy.backofLimit": world.line_of("backofLimit: 3"),
    }


# --- wait ----------------------------------------------------------------------------------------------------------------


async def test_wait_ends_when_the_goal_is_reached_or_out_of_reach(world: JobWorld) -> None:
    world.kit.script.when("good-*").run().until_told().succeed()
    world.kit.script.when("bad-*").run().fail(exit_code=3)
    await world.is_in(crew("good"), "Running")
    await world.is_in(crew("bad"), "Failed")
    assert (await world.dlop("wait", "good", "--for", "running")).err == "CrewJob good is Running\n"
    waiting = asyncio.create_task(world.dlop("wait", "good"))
    for pod in ("good-chief-0", "good-worker-0", "good-worker-1"):
        world.kit.kubelet.tell(f"default/{pod}")
    assert (await waiting).code == 0
    assert (await world.dlop("wait", "good", "--for", "finished")).code == 0
    assert (await world.dlop("wait", "bad", "--for", "finished")).code == 0
    assert (await world.dlop("wait", "bad", "--for", "failed")).code == 0
    out_of_reach = await world.dlop("wait", "bad")
    assert (out_of_reach.code, "CrewJob bad is Failed, and will not be succeeded any more." in out_of_reach.err) == (1, True)


async def test_wait_has_patience_for_so_long_and_says_where_the_job_stands(world: JobWorld) -> None:
    await world.is_in(crew("slow"), "Running")
    said = await world.dlop("wait", "slow", "--timeout", "0.2s")
    assert said.code == 1
    assert "CrewJob slow had not succeeded after 0.2 s; it is Running. `dlop describe slow` tells why." in said.err


async def test_a_job_that_is_deleted_is_not_waited_for(world: JobWorld) -> None:
    await world.is_in(crew("one"), "Running")
    found = await find_job(world.kit.client, read_job_reference("one", Registry([CrewJob])), namespace="default")
    waiting = asyncio.create_task(wait_for(world.kit.client, found, Goal.SUCCEEDED, timeout_seconds=30))
    assert (await world.dlop("delete", "one")).code == 0
    with pytest.raises(OutOfReachError, match=r"CrewJob one was deleted before it was succeeded\."):
        await waiting


async def test_ctrl_c_ends_a_command_with_130(world: JobWorld) -> None:
    await world.is_in(crew("one"), "Running")
    async with world.beside("get", "--watch") as watching:
        await watching.until_printed("Running")
        watching.process.send_signal(signal.SIGINT)
        assert await watching.process.wait() == 130
    assert "Traceback" not in watching.text
