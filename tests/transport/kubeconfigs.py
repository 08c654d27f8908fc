"""Kubeconfig files for tests."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml


def kubeconfig(
    directory: Path,
    *,
    server: str = "http://127.0.0.1:1",
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    context: str = "lab",
    namespace: str | None = None,
    file: str = "config",
) -> Path:
    """Write a kubeconfig with one context and return its path."""
    members: dict[str, Any] = {"cluster": f"{context}-cluster", "user": f"{context}-user"}
    if namespace is not None:
        members["namespace"] = namespace
    path = directory / file
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": context,
                "contexts": [{"name": context, "context": members}],
                "clusters": [{"name": f"{context}-cluster", "cluster": {"server": server, **(cluster or {})}}],
                "users": [{"name": f"{context}-user", "user": user or {}}],
            }
        )
    )
    return path


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def exec_user(script: str, **extra: Any) -> dict[str, Any]:
    """A user with an exec plugin that is a shell script."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    return {"exec": {**plugin, **extra}}


def exec_output(**status: Any) -> str:
    """The output of an exec plugin."""
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
