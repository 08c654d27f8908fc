"""What a pod wants done right after a container's start, and before its end."""

from __future__ import annotations

import asyncio

from dlop.embedded.kubelet.environment import all_expanded
from dlop.embedded.kubelet.exec_command import run_command
from dlop.embedded.kubelet.probes import Result, Target, http_get
from dlop.kube.types import JsonObject


class HookFailed(Exception):  # noqa: N818 - the kubelet's word
    """A hook did not do what it should."""


async def run_hook(handler: JsonObject, target: Target) -> None:
    """Run a `postStart` or `preStop` handler to its end.

    Raises:
        HookFailed: it failed.
    """
    if action := handler.get("exec"):
        argv = all_expanded(action.get("command") or (), target.launch.environment)
        outcome = await run_command(target.sandbox, target.launch, argv)
        if outcome.exit_code != 0:
            raise HookFailed(f"command '{' '.join(argv)}' exited with {outcome.exit_code}: {outcome.output}")
    elif action := handler.get("httpGet"):
        await _request(action, target)
    elif "sleep" in handler:
        await asyncio.sleep(float((handler["sleep"] or {}).get("seconds") or 0))


async def _request(action: JsonObject, target: Target) -> None:
    try:
        verdict = await http_get(action, target, timeout_seconds=None)
    except LookupError as error:
        raise HookFailed(str(error.args[0])) from error
    if verdict.result is not Result.SUCCESS:
        raise HookFailed(verdict.output)
