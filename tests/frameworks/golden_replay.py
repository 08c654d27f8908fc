"""Replays a recorded job on an API server under dlop, step by step, and reports unexpected differences.

    golden = Golden.read("pytorch-master-worker")
    async with open_golden_sandbox(transport, PyTorchJob, clock=time.time, timeouts=REAL_SERVER) as sandbox:
        report = await replay(golden, sandbox)
    assert not report.unexpected

After each step the job must reach the recorded state and stay there. Intended differences are listed in
`golden_allowed_differences`.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, NotFoundError, StatusError
from dlop.kube.resources import (
    CONFIG_MAPS,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from dlop.kube.types import JsonObject
from dlop.testing.pod_steps import Step
from tests.frameworks.golden_checker import Comparison, Objects, RecordingChecker, Report
from tests.frameworks.golden_diff import normalize_object, normalize_status
from tests.frameworks.golden_pod_steps import FinishPod, RunPod
from tests.frameworks.golden_recordings import OBJECTS, Golden
from tests.frameworks.golden_sandbox import GoldenSandbox

_INITIAL_STATE = "initial state"
_POD_GROUPS = (SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS)
# Controllers of the cluster create these in every namespace.
_NAMESPACE_DEFAULTS = {(CONFIG_MAPS, "kube-root-ca.crt"), (SERVICE_ACCOUNTS, "default")}


async def replay(golden: Golden, sandbox: GoldenSandbox) -> Report:
    """Create the job and replay all steps."""
    replayer = _Replayer(golden, sandbox)
    await replayer.replay()
    return replayer.checker.report


async def resume_replay(
    golden: Golden, sandbox: GoldenSandbox, *, job_uid: str, steps_done: int, before_next_step: Callable[[], Awaitable[None]]
) -> Report:
    """Check that an existing job is in the state after `steps_done` steps, and replay the remaining ones."""
    replayer = _Replayer(golden, sandbox, job_uid=job_uid)
    await replayer.check_state(steps_done)
    await before_next_step()
    await replayer.replay_steps(skip=steps_done)
    return replayer.checker.report


class _Replayer:
    def __init__(self, golden: Golden, sandbox: GoldenSandbox, *, job_uid: str = "") -> None:
        self.checker = RecordingChecker(golden.name, golden.body)
        self._body = golden.body
        self._sandbox = sandbox
        self._job_name: str = golden.manifest["metadata"]["name"]
        self._job_uid = job_uid

    async def replay(self) -> None:
        await self._settle(_INITIAL_STATE, await self._create(), self._body["create"] | {"view": self._body["settled"]})
        self.checker.compare_objects(_INITIAL_STATE, _by_path(self._body["objects"]), await self._objects())
        await self.replay_steps()

    async def check_state(self, steps_done: int) -> None:
        view = self._body["steps"][steps_done - 1]["then"] if steps_done else self._body["settled"]
        await self._settle(f"after {steps_done} steps" if steps_done else _INITIAL_STATE, {}, {"view": view})

    async def replay_steps(self, *, skip: int = 0) -> None:
        label = _INITIAL_STATE
        for step in self._body["steps"][skip:]:
            label = "after " + " ".join(str(word) for word in step["do"])
            response = await self._perform_step(step["then"], *step["do"])
            await self._settle(label, response, {key: step[key] for key in ("http", "message") if key in step} | {"view": step["then"]})
            if self.checker.awaits_objects:
                self.checker.compare_awaited(label, await self._objects())
        if "objects_after" in self._body:
            self.checker.compare_objects(label, _by_path(self._body["objects_after"]), await self._objects())
        self.checker.close()

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _create(self) -> JsonObject:
        try:
            created = await self._sandbox.client.create(self._sandbox.resource, self._body["manifest"], namespace=self._sandbox.namespace)
        except StatusError as error:
            return {"http": error.status_code, "message": str(error)}
        self._job_uid = created["metadata"]["uid"]
        # Otherwise an operator that has not seen the job yet would look like one that leaves it alone.
        await self._sandbox.wait_reconciled()
        return {"http": 201}

    async def _perform_step(self, then: JsonObject, action: str, target: Any, exit_code: int = 0, restarts: int = 0) -> JsonObject:
        """Perform a step of the recording. Returns the API server's response if the recording has one."""
        match action:
            case "patch":
                return await self._patch(target)
            case "wait":
                await asyncio.sleep(target)
            case "run":
                await self._change_pods(target, RunPod(exit_code, restarts), to="Running", then=then)
            case "succeed":
                await self._change_pods(target, FinishPod(0), to="Succeeded", then=then)
            case "fail":
                await self._change_pods(target, FinishPod(exit_code), to="Failed", then=then)
            case _:
                raise ValueError(f"unknown action in recording: {action!r}")
        return {}

    async def _patch(self, body: JsonObject) -> JsonObject:
        sandbox = self._sandbox
        try:
            await sandbox.client.patch(sandbox.resource, self._job_name, body, namespace=sandbox.namespace, patch_type=PatchType.MERGE)
        except StatusError as error:
            return {"http": error.status_code, "message": str(error)}
        return {"http": 200}

    async def _change_pods(self, patterns: str, step: Step, *, to: str, then: JsonObject) -> None:
        """Change the pods one by one, including pods that are created as a result, such as a launcher that waits for its workers."""
        seen: set[str] = set()
        while new := await self._find_pods(patterns, seen, awaited={name for name, phase in then["pods"].items() if phase == to}):
            seen |= new.keys()
            for name, pod in new.items():
                if pod["status"]["phase"] != to:
                    version = await self._job_version()
                    await self._change_pod(name, step)
                    await self._wait_job_change(version)

    async def _find_pods(self, patterns: str, seen: set[str], *, awaited: set[str]) -> JsonObject:
        """Matching pods that are not in `seen`. Waits for those in `awaited`."""
        new: JsonObject = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._sandbox.timeouts.reached_within):
                while not new:
                    pods = await self._sandbox.all(PODS)
                    new = {name: pod for name, pod in pods.items() if name not in seen and _matches(name, patterns)}
                    if not {name for name in awaited - seen if _matches(name, patterns)}:
                        break
                    await asyncio.sleep(0 if new else self._sandbox.timeouts.poll_interval)
        return new

    async def _change_pod(self, pod: str, step: Step) -> None:
        """Retries while the kubelet's cache has only an earlier pod of that name."""
        async with asyncio.timeout(self._sandbox.timeouts.reached_within):
            while True:
                with suppress(NotFoundError, ConflictError):
                    return await self._sandbox.kubelet.perform(f"{self._sandbox.namespace}/{pod}", step)
                await asyncio.sleep(self._sandbox.timeouts.poll_interval)

    async def _wait_job_change(self, version: str) -> None:
        """Wait for the operator to react, because the recorded operator has seen most of the intermediate states."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._sandbox.timeouts.noticed_within):
                while await self._job_version() == version:  # noqa: ASYNC110 - the server is polled
                    await asyncio.sleep(self._sandbox.timeouts.poll_interval)

    async def _job_version(self) -> str:
        job = await self._sandbox.job(self._job_name)
        return "" if job is None else str(job["metadata"]["resourceVersion"])

    # --- checks -----------------------------------------------------------------------------------------------------

    async def _settle(self, label: str, response: JsonObject, recorded: JsonObject) -> None:
        """Wait until the recorded state lasts or the time is up, and add the comparison to the report."""
        loop, timeouts = asyncio.get_running_loop(), self._sandbox.timeouts
        deadline, since = loop.time() + timeouts.reached_within, loop.time()
        while True:
            self._sandbox.operator.raise_if_stopped()
            comparison = Comparison(label, "", recorded, response | {"view": await self._view()})
            now = loop.time()
            since = now if self.checker.unexpected(comparison) else since
            if now >= deadline or now - since >= timeouts.unchanged_for:
                return self.checker.add(comparison)
            await asyncio.sleep(timeouts.poll_interval)

    async def _view(self) -> JsonObject:
        pods, services, job = await self._sandbox.all(PODS), await self._sandbox.all(SERVICES), await self._sandbox.job(self._job_name)
        status = None if job is None else normalize_status(job.get("status", {}), namespace=self._sandbox.namespace)
        return {"job": status, "pods": {name: _phase(pod) for name, pod in pods.items()}, "services": list(services)}

    async def _objects(self) -> Objects:
        """All objects in the namespace, regardless of their owner. It was empty before the job."""
        objects: JsonObject = {resource.plural: await self._all(resource) for resource in OBJECTS}
        for resource in _POD_GROUPS:
            with suppress(NotFoundError):  # the CRD is optional
                objects.setdefault(resource.plural, {}).update(await self._all(resource))
        return _by_path(objects)

    async def _all(self, resource: Resource) -> JsonObject:
        objects = await self._sandbox.all(resource)
        return {name: self._normalize(body) for name, body in objects.items() if (resource, name) not in _NAMESPACE_DEFAULTS}

    def _normalize(self, body: JsonObject) -> JsonObject:
        return normalize_object(body, namespace=self._sandbox.namespace, owner_uid=self._job_uid)


def _by_path(objects: JsonObject) -> Objects:
    return {f"objects.{plural}[{name}]": body for plural, named in objects.items() for name, body in named.items()}


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))


def _phase(pod: JsonObject) -> str:
    phase: str = pod["status"]["phase"]
    return phase if "deletionTimestamp" not in pod["metadata"] else f"{phase}, terminating"
