"""The grammars of names: for each, what is wrong with a text, in the real server's sentences. An empty list means it is right."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_ENDS = "and must start and end with an alphanumeric character"
_KEY_WORDS = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"

_matches = lru_cache(maxsize=256)(re.compile)


def _fits(pattern: str, text: str) -> bool:
    return _matches(pattern).fullmatch(text) is not None


def _sentence(words: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{words} (e.g. {listed}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    # Bytes are counted in any case; newer sentences of the real server say so.
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


@lru_cache(maxsize=4096)
def _subdomain(text: str, unit: str) -> tuple[str, ...]:
    errors = _too_long(text, 253, unit)
    if not _fits(_SUBDOMAIN, text):
        words = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
        errors.append(_sentence(words, _SUBDOMAIN, "example.com"))
    return tuple(errors)


def subdomain_errors(text: str) -> list[str]:
    """A DNS-1123 subdomain: the name of most objects."""
    return list(_subdomain(text, "characters"))


def label_errors(text: str) -> list[str]:
    """A DNS-1123 label: the name of a namespace or a container."""
    errors = _too_long(text, 63)
    if _fits(_LABEL, text):
        return errors
    if _fits(_SUBDOMAIN, text):
        return [*errors, "must not contain dots"]
    words = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
    return [*errors, _sentence(words, _LABEL, "my-name", "123-abc")]


def dns_1035_errors(text: str) -> list[str]:
    """A DNS-1035 label: the name of a service was one until names could begin with a digit."""
    errors = _too_long(text, 63)
    if not _fits(_DNS_1035, text):
        words = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        errors.append(_sentence(words, _DNS_1035, "my-name", "abc-123"))
    return errors


def path_segment_errors(text: str) -> list[str]:
    """Anything that can stand in a URL path: the names of RBAC objects."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


@lru_cache(maxsize=4096)
def _qualified(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        words = _sentence(_KEY_WORDS, _KEY, "MyName", "my.name", "123-abc")
        return (f"a valid label key {words} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    errors: list[str] = []
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif slash:
        errors += [f"prefix part {error}" for error in _subdomain(prefix, "bytes")]
    errors += [f"name part {error}" for error in (_too_long(name, 63, "bytes") if name else ["must be non-empty"])]
    if not _fits(_KEY, name):
        errors.append(f"name part {_sentence(_KEY_WORDS, _KEY, 'MyName', 'my.name', '123-abc')}")
    return tuple(errors)


def qualified_name_errors(text: str) -> list[str]:
    """`example.com/name` or `name`: keys of labels and annotations, and finalizers."""
    return list(_qualified(text))


@lru_cache(maxsize=4096)
def _label_value(text: str) -> tuple[str, ...]:
    errors = _too_long(text, 63, "bytes")
    if not _fits(_VALUE, text):
        words = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
        errors.append(_sentence(words, _VALUE, "MyValue", "my_value", "12345"))
    return tuple(errors)


def label_value_errors(text: str) -> list[str]:
    """The value of a label."""
    return list(_label_value(text))


def config_key_errors(text: str) -> list[str]:
    """A key in a ConfigMap or a Secret: it may become a file name."""
    errors = _too_long(text, 253)
    if not _fits(_CONFIG_KEY, text):
        words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        errors.append(_sentence(words, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        errors.append(f"must not be '{text}'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return errors


def environment_name_errors(text: str) -> list[str]:
    """The name of an environment variable: printable ASCII without `=`."""
    if not text:
        return ["environment variable name must be non-empty"]
    # Of all names in a pod these are the most: two looks at the text are faster than one at its pattern.
    if text.isascii() and text.isprintable() and "=" not in text:
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def port_name_errors(text: str) -> list[str]:
    """The name of a container's port."""
    errors = _too_long(text, 15)
    if not _fits("[-a-z0-9]+", text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def generate_name_errors(prefix: str, grammar: Callable[[str], list[str]]) -> list[str]:
    """What is wrong with the start of a name: it may end in a dash, because more is to follow."""
    return grammar(f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix)
