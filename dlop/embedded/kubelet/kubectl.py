"""A kubectl that can do one thing: `kubectl exec POD -- COMMAND`, from inside a pod.

It is what the launcher of an MPI job needs, on machines that have no kubectl. It is a program of its own, which a pod runs: it
imports nothing of dlop, finds the API server as every program in a pod does, and ends with the exit code of the command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PROTOCOL = "v5.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_FAILED = 1


def main() -> int:
    """Run a command in a container and pass on what it writes. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl",
        description="dlop's own kubectl, which brings commands into pods. For more, have the image kubectl-delivery mean a whole kubectl.",
    )
    parser.add_argument("verb", choices=["exec"])
    parser.add_argument("pod")
    parser.add_argument("-c", "--container")
    parser.add_argument("-n", "--namespace")
    words = sys.argv[1:]
    border = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:border]), words[border + 1 :]
    if not command:
        parser.error("write -- and a command after the pod")
    try:
        return asyncio.run(_run(options, command))
    except (aiohttp.ClientError, OSError, KeyError) as error:
        return _complain(f"error: the API server cannot be reached: {error or type(error).__name__}")


async def _run(options: argparse.Namespace, command: list[str]) -> int:
    namespace = options.namespace or (_FOLDER / "namespace").read_text()
    address = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    pod = f"{address}/api/v1/namespaces/{namespace}/pods/{options.pod}"
    headers = {"authorization": f"Bearer {(_FOLDER / 'token').read_text()}"}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=_FOLDER / "ca.crt"))
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        container = options.container or await _first_container(session, pod)
        query = urlencode([("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)])
        return await _converse(session, f"{pod}/exec?{query}")


async def _first_container(session: aiohttp.ClientSession, pod: str) -> str:
    """The server insists on a name where there are several."""
    async with session.get(pod) as answer:
        if answer.status != 200:
            raise SystemExit(_refused(await answer.text()))
        found = await answer.json()
    return str(found["spec"]["containers"][0]["name"])


async def _converse(session: aiohttp.ClientSession, url: str) -> int:
    try:
        socket = await session.ws_connect(url, protocols=[_PROTOCOL], max_msg_size=0)
    except aiohttp.WSServerHandshakeError:
        # What the server has against it, it says to those who ask without an upgrade.
        async with session.get(url) as answer:
            return _refused(await answer.text())
    outcome: dict[str, Any] = {"message": "the connection was lost"}
    async with socket:
        async for message in socket:
            channel, data = message.data[0], message.data[1:]
            if channel == _ERROR:
                outcome = json.loads(data)
            elif channel in (_STDOUT, _STDERR):
                _write(sys.stdout if channel == _STDOUT else sys.stderr, data)
    return _exit_code(outcome)


def _write(stream: Any, data: bytes) -> None:
    stream.buffer.write(data)
    stream.buffer.flush()


def _exit_code(outcome: dict[str, Any]) -> int:
    if outcome.get("status") == "Success":
        return 0
    causes = (outcome.get("details") or {}).get("causes") or ()
    code = next((int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"), None)
    if code is not None:
        return _complain(f"command terminated with exit code {code}", code)
    return _complain(f"error: {outcome.get('message')}")


def _refused(answer: str) -> int:
    """What the API server says, in kubectl's form; a kubelet that it asks says it in plain words."""
    try:
        status = json.loads(answer)
    except ValueError:
        return _complain(f"error: {answer.strip()}")
    return _complain(f"Error from server ({status.get('reason')}): {status.get('message')}")


def _complain(sentence: str, code: int = _FAILED) -> int:
    sys.stderr.write(f"{sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
