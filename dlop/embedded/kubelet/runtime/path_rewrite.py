"""Rewrites mount paths and service names in arguments and variables, for processes without mounts or a hosts file. Pure.

A mount path becomes the path on the host, and a name becomes an address, where they match as a whole: `/data` in `--out=/data/x`, but
not in `/mnt/data` or `/database`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

_BEFORE_PATH, _AFTER_PATH = r"(?<![\w./-])", r"(?![\w.-])"
# A name may be followed by a dot, but not by another DNS label.
_BEFORE_NAME, _AFTER_NAME = r"(?<![\w.-])", r"(?![\w-]|\.\w)"

Rewrite = Callable[[str], str]


def rewriter(*, paths: Mapping[str, str], names: Mapping[str, str]) -> Rewrite:
    """A function that replaces paths and names in a string. The longest match wins."""
    trimmed = {path.rstrip("/"): value.rstrip("/") for path, value in paths.items() if path.rstrip("/")}
    replace_paths = _replacer(trimmed, before=_BEFORE_PATH, after=_AFTER_PATH)
    replace_names = _replacer(names, before=_BEFORE_NAME, after=_AFTER_NAME)
    # Names first, because a directory on the host may contain the name of a service.
    return lambda text: replace_paths(replace_names(text))


def _replacer(values: Mapping[str, str], *, before: str, after: str) -> Rewrite:
    if not values:
        return lambda text: text
    pattern = re.compile(before + "(?:" + _alternation(values) + ")" + after)
    return lambda text: pattern.sub(lambda match: values[match[0]], text)


def _alternation(strings: Iterable[str]) -> str:
    return "|".join(re.escape(string) for string in sorted(strings, key=len, reverse=True))
