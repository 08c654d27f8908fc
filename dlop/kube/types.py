"""Types shared by everything that handles Kubernetes objects."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
