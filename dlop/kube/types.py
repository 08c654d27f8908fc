"""Types shared by all modules that handle Kubernetes objects."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
