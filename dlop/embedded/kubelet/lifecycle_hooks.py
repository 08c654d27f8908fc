"""Runs the postStart and preStop hooks of containers."""

from __future__ import annotations

import asyncio

from dlop.embedded.kubelet.environment import expand_all
from dlop.embedded.kubelet.exec_command import run_command
from dlop.embedded.kubelet.probes import CheckResult, ProbeTarget, http_get
from dlop.kube.types import JsonObject


class HookError(Exception):
    pass


async def run_hook(handler: JsonObject, target: ProbeTarget) -> None:
    """Run a `postStart` or `preStop` handler and wait for its end.

    Raises:
        HookError: the hook failed.
    """
    if action := handler.get("exec"):
        argv = expand_all(action.get("command") or (), target.launch.environment)
        result = await run_command(target.sandbox, target.launch, argv)
        if result.exit_code != 0:
            raise HookError(f"command '{' '.join(argv)}' exited with {result.exit_code}: {result.output}")
    elif action := handler.get("httpGet"):
        await _run_http_hook(action, target)
    elif "sleep" in handler:
        await asyncio.sleep(float((handler["sleep"] or {}).get("seconds") or 0))


async def _run_http_hook(action: JsonObject, target: ProbeTarget) -> None:
    try:
        outcome = await http_get(action, target, timeout_seconds=None)
    except LookupError as error:
        raise HookError(str(error.args[0])) from error
    if outcome.result is not CheckResult.SUCCESS:
        raise HookError(outcome.output)
