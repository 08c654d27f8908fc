"""Manifests of the examples in this repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())
    return manifest


def variables(pod: dict[str, Any], container: int = 0) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][container].get("env", [])}


def by_name(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {body["metadata"]["name"]: body for body in objects if body["kind"] == kind}
