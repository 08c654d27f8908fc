"""Access to the indexes of a cache."""

from __future__ import annotations

from typing import Any

from dlop.kube.cache import Cache


def index_sizes(cache: Cache[Any]) -> dict[str, int]:
    """Number of values in each index of orphans, by label; the owner index has an empty name."""
    contents = cache._contents
    sizes = {label: len(index._keys) for label, index in contents.orphans.items()}
    return {"": len(contents.by_owner._keys), **sizes}
