"""The commands for Crons as a user runs them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlop.api.crd import build_cron_crd
from dlop.api.cron import CRONS
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from dlop.kube.types import JsonObject
from tests.sim.cli_env import CliEnv, cli_env
from tests.sim.crew_job import crew

pytestmark = pytest.mark.machine


def cron(name: str = "nightly", schedule: str = "0 2 1 1 *", **fields: Any) -> JsonObject:
    job = crew("unused")
    template = {"apiVersion": job["apiVersion"], "kind": job["kind"], "workload": {"spec": job["spec"]}}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": CRONS.api_version,
        "kind": "Cron",
        "metadata": metadata,
        "spec": {"schedule": schedule, "template": template, **fields},
    }


@pytest.fixture
async def env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[CliEnv]:
    async with cli_env(tmp_path, capsys) as environment:
        await environment.kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await asyncio.sleep(0.1)
        yield environment


async def create(env: CliEnv, manifest: JsonObject) -> None:
    await env.kit.client.create(CRONS, manifest, namespace="default")


async def until_scheduled(env: CliEnv, name: str = "often") -> JsonObject:
    """Wait until the Cron has created a job that the history shows, and return its status."""
    async with asyncio.timeout(30), env.kit.client.watch(CRONS, namespace="default", bookmarks=False) as events:
        async for event in events:
            body = event.decode()
            status: JsonObject = body.get("status") or {}
            if body["metadata"]["name"] == name and status.get("history"):
                return status
    raise AssertionError("the watch ended")


async def test_get_shows_crons_below_the_jobs_with_their_next_run(env: CliEnv) -> None:
    await env.submit_and_wait(crew("train"), "Running")
    await create(env, cron(timeZone="Asia/Tokyo"))
    await create(env, cron("off", suspend=True))
    result = await env.dlop("get")
    assert result.code == 0
    jobs, crons = result.out.split("\n\n")
    assert jobs.splitlines()[1].startswith("train ")
    header, nightly, off = crons.splitlines()
    assert header.split("   ")[0].strip() == "NAME"
    cells = [cell.strip() for cell in nightly.split("   ") if cell.strip()]
    assert cells[:5] == ["nightly", "Cron", "0 2 1 1 * Asia/Tokyo", "0", "-"]
    assert cells[5].startswith("in ")
    assert " Suspended " in off


async def test_get_crons_shows_only_crons(env: CliEnv) -> None:
    assert (await env.dlop("get", "crons")).err == "no Crons found in the namespace default\n"
    await env.submit_and_wait(crew("train"), "Running")
    await create(env, cron())
    await create(env, cron("weekly", "@weekly"))
    assert [row[0] for row in (await env.dlop("get", "crons")).rows] == ["nightly", "weekly"]
    assert [row[0] for row in (await env.dlop("get", "cron/weekly")).rows] == ["weekly"]
    assert [row[:2] for row in (await env.dlop("get", "crons.apps.kubedl.io", "-A")).rows] == [
        ["default", "nightly"],
        ["default", "weekly"],
    ]
    [view] = (await env.dlop("get", "cron/weekly", "-o", "json")).json
    assert (view["name"], view["schedule"], view["concurrencyPolicy"], view["active"]) == ("weekly", "@weekly", "Allow", [])
    assert view["nextScheduledAt"].endswith("T00:00:00Z")
    missing = await env.dlop("get", "cron/daily")
    assert missing.code == 1
    assert "Cron daily not found in the namespace default. Existing Crons: nightly, weekly." in missing.err


async def test_get_watch_prints_a_line_for_every_change_of_a_job_or_a_cron(env: CliEnv) -> None:
    await create(env, cron(timeZone="Asia/Tokyo"))
    async with env.run_in_background("get", "--watch") as command:
        await command.wait_for_output(r"nightly +Cron +0 2 1 1 \* Asia/Tokyo +0 +- +in ")
        await env.submit_and_wait(crew("train"), "Running")
        await command.wait_for_output(r"train +CrewJob +Running")
        assert (await env.dlop("suspend", "cron/nightly")).code == 0
        await command.wait_for_output(r"nightly +Cron .* Suspended")
        await env.kit.client.delete(CRONS, "nightly", namespace="default")
        await command.wait_for_output("Cron nightly deleted")
    lines = command.text.splitlines()
    headers = [index for index, line in enumerate(lines) if line.startswith("NAME ")]
    assert ["SCHEDULE" in lines[index] for index in headers] == [True, False, True]
    assert [lines[index - 1] for index in headers[1:]] == ["", ""]


async def test_get_watch_shows_the_jobs_that_a_cron_creates(env: CliEnv) -> None:
    async with env.run_in_background("get", "--watch") as command:
        await create(env, cron("often", "@every 1s", concurrencyPolicy="Forbid"))
        name = (await until_scheduled(env))["history"][0]["object"]["name"]
        await command.wait_for_output(rf"(?s){name} +CrewJob .*often +Cron +@every 1s +1 |often +Cron +@every 1s +1 .*{name} +CrewJob ")


async def test_get_watch_of_crons_prints_only_visible_changes_of_crons(env: CliEnv) -> None:
    await env.submit_and_wait(crew("train"), "Running")
    for name in ("nightly", "weekly"):
        await create(env, cron(name))
    one = env.run_in_background("get", "cron/nightly", "-w", "-A")
    async with env.run_in_background("get", "crons", "-w", "-o", "json") as command, one as only_nightly:
        await command.wait_for_output('"name":"weekly"')
        await only_nightly.wait_for_output("default +nightly ")
        for name in ("weekly", "nightly"):
            await env.kit.client.patch(CRONS, name, {"metadata": {"labels": {"team": "a"}}}, namespace="default")
            assert (await env.dlop("suspend", f"cron/{name}")).code == 0
            await env.kit.client.delete(CRONS, name, namespace="default")
            await command.wait_for_output(f"Cron {name} deleted")
        await only_nightly.wait_for_output("Cron nightly deleted")
    views = [json.loads(line) for line in command.text.splitlines() if line.startswith("{")]
    assert [(view["name"], view["isSuspended"]) for view in views] == [
        ("nightly", False),
        ("weekly", False),
        ("weekly", True),
        ("nightly", True),
    ]
    assert [line.split()[1] for line in only_nightly.text.splitlines()] == ["NAME", "nightly", "nightly", "nightly"]


async def test_get_watch_skips_crons_that_the_user_may_not_list(env: CliEnv) -> None:
    await create(env, cron())
    forbid = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not"}
    env.kit.cluster.faults.fail_before(forbid, match=RequestMatch(plural="crons"), times=1000)
    async with env.run_in_background("get", "-w") as command:
        await env.submit_and_wait(crew("train"), "Running")
        await command.wait_for_output("train +CrewJob +Running")
    assert "nightly" not in command.text
    assert (await env.dlop("get", "crons", "-w")).err == "dlop get: you may not\n"


async def test_get_watch_without_crons_reports_what_is_missing(env: CliEnv) -> None:
    await create(env, cron())
    missing = await env.dlop("get", "cron/daily", "-w")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == "dlop get: Cron daily not found in the namespace default. Existing Crons: nightly.\n"


async def test_describe_shows_the_schedule_and_the_jobs(env: CliEnv) -> None:
    await create(env, cron("often", "@every 1s", concurrencyPolicy="Forbid"))
    status = await until_scheduled(env)
    name = status["history"][0]["object"]["name"]
    page = (await env.dlop("describe", "often")).out
    assert page.startswith("Cron often\n")
    assert "Schedule:     @every 1s UTC" in page
    assert "Concurrency:  Forbid" in page
    assert f"Active:       CrewJob {name}" in page
    assert "Next run:     " in page
    assert "(in " in page
    assert f"CrewJob {name}" in page.partition("Jobs\n")[2]
    view = (await env.dlop("describe", "cron/often", "-o", "json")).json["cron"]
    assert view["active"] == [f"CrewJob {name}"]


async def test_describe_shows_the_cron_that_created_a_job(env: CliEnv) -> None:
    await create(env, cron("often", "@every 1s", concurrencyPolicy="Forbid"))
    name = (await until_scheduled(env))["history"][0]["object"]["name"]
    page = (await env.dlop("describe", name)).out
    assert re.search(r"^  Cron: {9}often \(created this job for \S+Z\); .*next run \S+Z \(in \d+s\)$", page, re.MULTILINE)
    described = (await env.dlop("describe", name, "-o", "json")).json
    assert (described["cron"]["name"], described["cron"]["hasCreatedJob"], described["tensorBoard"]) == ("often", True, None)


async def test_describe_shows_the_cron_of_a_job_with_a_cron_policy(env: CliEnv) -> None:
    await env.submit_and_wait(crew("train", policy={"cronPolicy": {"schedule": "0 2 1 1 *"}}), "Running")
    async with asyncio.timeout(30), env.kit.client.watch(CRONS, namespace="default", bookmarks=False) as events:
        await anext(aiter(events))
    assert re.search(
        r"^  Cron: {9}train \(from cronPolicy\); next run \S+Z \(in \d+d", (await env.dlop("describe", "train")).out, re.MULTILINE
    )
    view = (await env.dlop("describe", "train", "-o", "json")).json["cron"]
    next_run = (await env.dlop("describe", "cron/train", "-o", "json")).json["cron"]["nextScheduledAt"]
    assert view == {
        "name": "train",
        "hasCreatedJob": False,
        "scheduledAt": "",
        "isSuspended": False,
        "nextScheduledAt": next_run,
        "problem": "",
    }


async def test_describe_says_why_no_job_is_created(env: CliEnv) -> None:
    await create(env, cron("bad", "every day"))
    page = (await env.dlop("describe", "cron/bad")).out
    assert "Next run:     none" in page
    assert "spec.schedule: must have five fields, got 2 in 'every day'" in page
    assert "spec.schedule: must have five fields" in (await env.dlop("get", "crons")).out


async def test_a_job_and_a_cron_of_the_same_name_are_told_apart(env: CliEnv) -> None:
    await env.submit_and_wait(crew("nightly"), "Running")
    await create(env, cron())
    assert (await env.dlop("describe", "nightly")).out.startswith("CrewJob nightly\n")
    assert (await env.dlop("describe", "cron/nightly")).out.startswith("Cron nightly\n")


async def test_a_cron_is_suspended_resumed_and_deleted(env: CliEnv) -> None:
    await create(env, cron())
    assert (await env.dlop("suspend", "cron/nightly")).err == "Cron nightly suspended\n"
    assert (await env.dlop("suspend", "nightly")).err == "Cron nightly is already suspended\n"
    assert "Next run:     suspended" in (await env.dlop("describe", "nightly")).out
    assert (await env.dlop("resume", "nightly")).err == "Cron nightly resumed\n"
    assert (await env.dlop("delete", "cron/nightly")).err == "Cron nightly deleted\n"
    with pytest.raises(NotFoundError):
        await env.kit.client.get(CRONS, "nightly", namespace="default")
    assert "job nightly not found in the namespace default" in (await env.dlop("describe", "nightly")).err


@pytest.mark.parametrize("command", [("logs",), ("wait",), ("tensorboard", "--no-browser"), ("scale",)])
@pytest.mark.parametrize("name", ["cron/nightly", "nightly"])
async def test_a_command_for_jobs_says_that_a_cron_is_not_one(env: CliEnv, command: tuple[str, ...], name: str) -> None:
    await create(env, cron())
    sizes = ["Rower=2"] if command == ("scale",) else []
    result = await env.dlop(*command, name, *sizes)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"dlop {command[0]}: {name} is a Cron and not a job; `dlop describe cron/nightly` lists its jobs.\n"


async def test_get_finds_a_cron_by_its_name_alone(env: CliEnv) -> None:
    await create(env, cron())
    await create(env, cron("weekly"))
    assert [row[:2] for row in (await env.dlop("get", "nightly")).rows] == [["nightly", "Cron"]]


@pytest.mark.parametrize("command", ["get", "describe", "suspend", "resume", "delete", "logs", "wait"])
async def test_a_cron_that_does_not_exist_is_reported_with_the_choices(env: CliEnv, command: str) -> None:
    await env.kit.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await env.submit_and_wait(crew("train"), "Running")
    for name in ("nightly", "weekly"):
        await create(env, cron(name))
    far = cron("far")
    await env.kit.client.create(CRONS, {**far, "metadata": {"name": "far", "namespace": "team"}}, namespace="team")
    expected = {
        "cron/nihgtly": "Cron nihgtly not found in the namespace default. Did you mean nightly?",
        "cron/none": "Cron none not found in the namespace default. Existing Crons: nightly, weekly.",
        "cron/far": "Cron far not found in the namespace default, but it exists in team: add -n team.",
        "none": "job none not found in the namespace default. Existing jobs: train.",
        "cron/": "cron needs a name; use cron/NAME, or `dlop get crons` to list all Crons.",
        "": "the name of the job is empty; use JOB or KIND/JOB.",
    }
    if command != "get":
        expected["crons"] = "crons needs a name; use crons/NAME, or `dlop get crons` to list all Crons."
    for name, message in expected.items():
        result = await env.dlop(command, name)
        assert (result.code, result.out, result.err) == (1, "", f"dlop {command}: {message}\n")
    assert (await env.dlop(command, "cron/none", "-n", "kube-public")).err.endswith("The namespace has no Crons.\n")
    assert env.object_names(CRONS) == ["nightly", "weekly", "far"]


async def test_a_missing_job_is_reported_although_the_user_may_not_read_crons(env: CliEnv) -> None:
    forbid = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not read crons"}
    env.kit.cluster.faults.fail_before(forbid, match=RequestMatch(plural="crons"), times=1000)
    for command in ("describe", "logs"):
        result = await env.dlop(command, "none")
        assert result.err == f"dlop {command}: job none not found in the namespace default. The namespace has no jobs.\n"
    assert (await env.dlop("describe", "cron/none")).err == "dlop describe: you may not read crons\n"


async def test_submit_creates_crons(env: CliEnv) -> None:
    assert (await env.dlop("submit", env.write_file(cron()))).code == 0
    assert [row[0] for row in (await env.dlop("get", "crons")).rows] == ["nightly"]


async def test_commands_work_on_a_cluster_without_crons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cli_env(tmp_path, capsys) as env:
        await env.submit_and_wait(crew("train"), "Running")
        result = await env.dlop("get")
        assert (result.err, [row[0] for row in result.rows]) == ("", ["train"])
        for words in (("get", "crons"), ("get", "crons", "-w"), ("describe", "cron/nightly"), ("delete", "cron/nightly")):
            missing = await env.dlop(*words)
            assert missing.code == 1
            assert missing.err == f"dlop {words[0]}: the cluster does not serve Crons; `dlop install` installs the CRDs.\n"
        async with env.run_in_background("get", "-w") as command:
            await command.wait_for_output("train +CrewJob +Running")
            await env.delete_job("train")
            await command.wait_for_output("CrewJob train deleted")
        assert "job nightly not found" in (await env.dlop("describe", "nightly")).err
