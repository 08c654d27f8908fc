"""Plays a recorded job on an API server under dlop, step by step, and says where the two are not the same.

    golden = Golden.read("pytorch-master-worker")
    async with stage(transport, PyTorchJob, clock=time.time, patience=ON_A_REAL_SERVER) as there:
        report = await play(golden, there)
    assert not report.wrong

After each step the world gets time to become what was recorded, and has to stay so. What may differ is written down in
`golden_differences`; everything else is wrong.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, NotFoundError, StatusError
from dlop.kube.resources import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SCHEDULER_PLUGINS_POD_GROUPS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from dlop.kube.types import JsonObject
from dlop.testing.pod_steps import Step
from tests.frameworks.golden_comparison import as_recorded, status_as_recorded
from tests.frameworks.golden_judge import Comparison, Judge, Objects, Report
from tests.frameworks.golden_kubelet import Ended, Started
from tests.frameworks.golden_stage import Stage

GOLDENS = Path(__file__).parent / "goldens"
_AT_FIRST = "at first"
OBJECTS = (CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES)
"""What jobs have on every server."""
_GROUPS = (SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS)
# Every namespace has them, from a moment after its creation on.
_NAMESPACES_OWN = {(CONFIG_MAPS, "kube-root-ca.crt"), (SERVICE_ACCOUNTS, "default")}


@dataclass(frozen=True, slots=True)
class Golden:
    """One recording."""

    name: str
    body: JsonObject

    @classmethod
    def read(cls, name: str) -> Self:
        """One of those in the folder."""
        return cls(name, json.loads((GOLDENS / f"{name}.json").read_text()))

    @property
    def manifest(self) -> JsonObject:
        """The job that was created."""
        manifest: JsonObject = self.body["manifest"]
        return manifest


def goldens() -> Iterator[str]:
    """The names of all recordings."""
    return iter(sorted(path.stem for path in GOLDENS.glob("*.json")))


async def play(golden: Golden, there: Stage) -> Report:
    """Everything from the creation of the job to the last step."""
    player = _Player(golden, there)
    await player.play()
    return player.judge.report


async def go_on(golden: Golden, there: Stage, *, job_uid: str, after: int, settled: Callable[[], Awaitable[None]]) -> Report:
    """The rest of a recording, from when so many of its steps are done. `settled` is called before the next one."""
    player = _Player(golden, there, job_uid=job_uid)
    await player.look(after)
    await settled()
    await player.play_steps(after=after)
    return player.judge.report


class _Player:
    def __init__(self, golden: Golden, there: Stage, *, job_uid: str = "") -> None:
        self.judge = Judge(golden.name, golden.body)
        self._body = golden.body
        self._there = there
        self._job_name: str = golden.manifest["metadata"]["name"]
        self._job_uid = job_uid

    async def play(self) -> None:
        moment = _AT_FIRST
        await self._settle(moment, await self._create(), self._body["create"] | {"view": self._body["settled"]})
        self.judge.compare_objects(moment, _by_path(self._body["objects"]), await self._objects())
        await self.play_steps()

    async def look(self, done: int) -> None:
        """Whether all is as it was when so many steps were done."""
        view = self._body["steps"][done - 1]["then"] if done else self._body["settled"]
        await self._settle(f"after {done} steps" if done else _AT_FIRST, {}, {"view": view})

    async def play_steps(self, *, after: int = 0) -> None:
        """All of them, or those after the first so many."""
        moment = _AT_FIRST
        for step in self._body["steps"][after:]:
            moment = "after " + " ".join(str(word) for word in step["do"])
            answer = await self._do(step["then"], *step["do"])
            await self._settle(moment, answer, {key: step[key] for key in ("http", "message") if key in step} | {"view": step["then"]})
            if self.judge.awaits_objects:
                self.judge.compare_awaited(moment, await self._objects())
        if "objects_after" in self._body:
            self.judge.compare_objects(moment, _by_path(self._body["objects_after"]), await self._objects())
        self.judge.close()

    # --- doing -------------------------------------------------------------------------------------------------------

    async def _create(self) -> JsonObject:
        try:
            made = await self._there.client.create(self._there.resource, self._body["manifest"], namespace=self._there.namespace)
        except StatusError as error:
            return {"http": error.status_code, "message": str(error)}
        self._job_uid = made["metadata"]["uid"]
        await self._there.until_looked_at()  # else one that has not heard of it yet could pass for one that leaves it alone
        return {"http": 201}

    async def _do(self, then: JsonObject, deed: str, what: Any, exit_code: int = 0, restarts: int = 0) -> JsonObject:
        """One step of the recording, and the API server's answer where that was recorded."""
        match deed:
            case "patch":
                return await self._patch(what)
            case "wait":
                await asyncio.sleep(what)
            case "run":
                await self._change_pods(what, Started(exit_code, restarts), to="Running", then=then)
            case "succeed":
                await self._change_pods(what, Ended(0), to="Succeeded", then=then)
            case "fail":
                await self._change_pods(what, Ended(exit_code), to="Failed", then=then)
            case _:
                raise ValueError(f"a recording says {deed!r}, and nobody knows how to do that")
        return {}

    async def _patch(self, body: JsonObject) -> JsonObject:
        client, there = self._there.client, self._there
        try:
            await client.patch(there.resource, self._job_name, body, namespace=there.namespace, patch_type=PatchType.MERGE)
        except StatusError as error:
            return {"http": error.status_code, "message": str(error)}
        return {"http": 200}

    async def _change_pods(self, patterns: str, step: Step, *, to: str, then: JsonObject) -> None:
        """One pod after another; also those that are created only because of it, such as a launcher that waits for its workers."""
        seen: set[str] = set()
        while new := await self._matching(patterns, seen, awaited={name for name, phase in then["pods"].items() if phase == to}):
            seen |= new.keys()
            for name, pod in new.items():
                if pod["status"]["phase"] != to:
                    before = await self._version()
                    await self._perform(name, step)
                    await self._until_noticed(before)

    async def _matching(self, patterns: str, seen: set[str], *, awaited: set[str]) -> JsonObject:
        """Further pods that match. Where some are awaited that have not been seen yet, they get time to appear."""
        found: JsonObject = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._there.patience.reached_within):
                while not found:
                    pods = await self._there.all(PODS)
                    found = {name: pod for name, pod in pods.items() if name not in seen and _matches(name, patterns)}
                    if not {name for name in awaited - seen if _matches(name, patterns)}:
                        break
                    await asyncio.sleep(0 if found else self._there.patience.between_looks)
        return found

    async def _perform(self, pod: str, step: Step) -> None:
        """Let this happen to a pod. The kubelet may still know only the pod of that name that was there before."""
        async with asyncio.timeout(self._there.patience.reached_within):
            while True:
                with suppress(NotFoundError, ConflictError):
                    return await self._there.kubelet.perform(f"{self._there.namespace}/{pod}", step)
                await asyncio.sleep(self._there.patience.between_looks)

    async def _until_noticed(self, before: str) -> None:
        """Pods change one after another: the operator of the recordings has seen most of the states in between."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._there.patience.noticed_within):
                while await self._version() == before:  # noqa: ASYNC110 - a server is asked, which has no event to wait for
                    await asyncio.sleep(self._there.patience.between_looks)

    async def _version(self) -> str:
        job = await self._there.job(self._job_name)
        return "" if job is None else str(job["metadata"]["resourceVersion"])

    # --- looking -----------------------------------------------------------------------------------------------------

    async def _settle(self, moment: str, answer: JsonObject, recorded: JsonObject) -> None:
        """Wait until the world is as recorded and stays so, or until it had time enough; then keep what is different."""
        loop, patience = asyncio.get_running_loop(), self._there.patience
        deadline, since = loop.time() + patience.reached_within, loop.time()
        while True:
            self._there.operator.demand()
            found = Comparison(moment, "", recorded, answer | {"view": await self._view()})
            now = loop.time()
            since = now if self.judge.wrong(found) else since
            if now >= deadline or now - since >= patience.unchanged_for:
                return self.judge.keep(found)
            await asyncio.sleep(patience.between_looks)

    async def _view(self) -> JsonObject:
        pods, services, job = await self._there.all(PODS), await self._there.all(SERVICES), await self._there.job(self._job_name)
        status = None if job is None else status_as_recorded(job.get("status", {}), namespace=self._there.namespace)
        return {"job": status, "pods": {name: _phase(pod) for name, pod in pods.items()}, "services": list(services)}

    async def _objects(self) -> Objects:
        """Every object in the namespace, whosever it is: before the job there were none."""
        found: JsonObject = {resource.plural: await self._all(resource) for resource in OBJECTS}
        for resource in _GROUPS:
            with suppress(NotFoundError):  # few servers have a definition of them
                found.setdefault(resource.plural, {}).update(await self._all(resource))
        return _by_path(found)

    async def _all(self, resource: Resource) -> JsonObject:
        found = await self._there.all(resource)
        return {name: self._plain(body) for name, body in found.items() if (resource, name) not in _NAMESPACES_OWN}

    def _plain(self, body: JsonObject) -> JsonObject:
        return as_recorded(body, namespace=self._there.namespace, owner_uid=self._job_uid)


def _by_path(objects: JsonObject) -> Objects:
    return {f"objects.{plural}[{name}]": body for plural, named in objects.items() for name, body in named.items()}


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))


def _phase(pod: JsonObject) -> str:
    phase: str = pod["status"]["phase"]
    return phase if "deletionTimestamp" not in pod["metadata"] else f"{phase}, about to go"
