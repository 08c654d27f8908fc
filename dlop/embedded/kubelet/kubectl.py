"""A minimal kubectl for pods, with one command: `kubectl exec POD -- COMMAND`.

The launcher of an MPI job needs it on machines without kubectl. It runs as a separate program inside a pod, imports nothing of dlop, uses
the in-cluster configuration and exits with the exit code of the command.
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

_SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PROTOCOL = "v5.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_FAILED = 1


def main() -> int:
    """Run a command in a container and print its output. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl",
        description="A minimal kubectl that supports only exec. For a full kubectl, map the image kubectl-delivery to one.",
    )
    parser.add_argument("verb", choices=["exec"])
    parser.add_argument("pod")
    parser.add_argument("-c", "--container")
    parser.add_argument("-n", "--namespace")
    arguments = sys.argv[1:]
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = parser.parse_args(arguments[:separator]), arguments[separator + 1 :]
    if not command:
        parser.error("specify a command after --")
    try:
        return asyncio.run(_run(options, command))
    except (aiohttp.ClientError, OSError, KeyError) as error:
        return _print_error(f"error: cannot reach the API server: {error or type(error).__name__}")


async def _run(options: argparse.Namespace, command: list[str]) -> int:
    namespace = options.namespace or (_SERVICE_ACCOUNT_DIR / "namespace").read_text()
    address = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    pod_url = f"{address}/api/v1/namespaces/{namespace}/pods/{options.pod}"
    headers = {"authorization": f"Bearer {(_SERVICE_ACCOUNT_DIR / 'token').read_text()}"}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=_SERVICE_ACCOUNT_DIR / "ca.crt"))
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        container = options.container or await _first_container(session, pod_url)
        query = urlencode([("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)])
        return await _exec(session, f"{pod_url}/exec?{query}")


async def _first_container(session: aiohttp.ClientSession, pod_url: str) -> str:
    """The name of the first container, because the server requires one for pods with several."""
    async with session.get(pod_url) as response:
        if response.status != 200:
            raise SystemExit(_print_error_response(await response.text()))
        pod = await response.json()
    return str(pod["spec"]["containers"][0]["name"])


async def _exec(session: aiohttp.ClientSession, url: str) -> int:
    try:
        socket = await session.ws_connect(url, protocols=[_PROTOCOL], max_msg_size=0)
    except aiohttp.WSServerHandshakeError:
        # The error message is in the response to a request without an upgrade.
        async with session.get(url) as response:
            return _print_error_response(await response.text())
    status: dict[str, Any] = {"message": "lost connection to the server"}
    async with socket:
        async for message in socket:
            channel, data = message.data[0], message.data[1:]
            if channel == _ERROR:
                status = json.loads(data)
            elif channel in (_STDOUT, _STDERR):
                _write(sys.stdout if channel == _STDOUT else sys.stderr, data)
    return _exit_code(status)


def _write(stream: Any, data: bytes) -> None:
    stream.buffer.write(data)
    stream.buffer.flush()


def _exit_code(status: dict[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    code = next((int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"), None)
    if code is not None:
        return _print_error(f"command terminated with exit code {code}", code)
    return _print_error(f"error: {status.get('message')}")


def _print_error_response(response: str) -> int:
    """Print an error of the API server in kubectl's format. An error of the kubelet is plain text."""
    try:
        status = json.loads(response)
    except ValueError:
        return _print_error(f"error: {response.strip()}")
    return _print_error(f"Error from server ({status.get('reason')}): {status.get('message')}")


def _print_error(message: str, code: int = _FAILED) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
