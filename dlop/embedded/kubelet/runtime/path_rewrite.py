"""Paths and names put in by hand, for processes that cannot be given mounts or a hosts file. Pure.

A mount path becomes the folder on the host, and a name becomes an address, where they stand as a whole: `/data` in `--out=/data/x`,
but not in `/mnt/data` nor in `/database`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

_BEFORE_PATH, _AFTER_PATH = r"(?<![\w./-])", r"(?![\w.-])"
# A full stop ends a name only where no other label follows.
_BEFORE_NAME, _AFTER_NAME = r"(?<![\w.-])", r"(?![\w-]|\.\w)"

Rewrite = Callable[[str], str]


def rewriter(*, paths: Mapping[str, str], names: Mapping[str, str]) -> Rewrite:
    """What puts these in. The longest one that fits wins."""
    trimmed = {path.rstrip("/"): value.rstrip("/") for path, value in paths.items() if path.rstrip("/")}
    of_paths = _replacing(trimmed, before=_BEFORE_PATH, after=_AFTER_PATH)
    of_names = _replacing(names, before=_BEFORE_NAME, after=_AFTER_NAME)
    # Names first: a folder on the host may well have the name of a service in its path.
    return lambda text: of_paths(of_names(text))


def _replacing(values: Mapping[str, str], *, before: str, after: str) -> Rewrite:
    if not values:
        return lambda text: text
    pattern = re.compile(before + "(?:" + _any_of(values) + ")" + after)
    return lambda text: pattern.sub(lambda match: values[match[0]], text)


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
