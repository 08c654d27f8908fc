"""Validation of names. Every function returns the error messages of kube-apiserver; an empty list means that the name is valid."""

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
_KEY_FORMAT = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"

_compile = lru_cache(maxsize=256)(re.compile)


def _matches(pattern: str, text: str) -> bool:
    return _compile(pattern).fullmatch(text) is not None


def _message(description: str, pattern: str, *examples: str) -> str:
    quoted = " or ".join(f"'{example}', " for example in examples)
    return f"{description} (e.g. {quoted}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    # The limit is in bytes, although some messages of kube-apiserver say characters.
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


@lru_cache(maxsize=4096)
def _subdomain(text: str, unit: str) -> tuple[str, ...]:
    errors = _too_long(text, 253, unit)
    if not _matches(_SUBDOMAIN, text):
        description = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
        errors.append(_message(description, _SUBDOMAIN, "example.com"))
    return tuple(errors)


def subdomain_errors(text: str) -> list[str]:
    """A DNS-1123 subdomain, the format of most object names."""
    return list(_subdomain(text, "characters"))


def label_errors(text: str) -> list[str]:
    """A DNS-1123 label, the format of namespace and container names."""
    errors = _too_long(text, 63)
    if _matches(_LABEL, text):
        return errors
    if _matches(_SUBDOMAIN, text):
        return [*errors, "must not contain dots"]
    description = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
    return [*errors, _message(description, _LABEL, "my-name", "123-abc")]


def dns_1035_errors(text: str) -> list[str]:
    """A DNS-1035 label, the former format of service names."""
    errors = _too_long(text, 63)
    if not _matches(_DNS_1035, text):
        description = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        errors.append(_message(description, _DNS_1035, "my-name", "abc-123"))
    return errors


def path_segment_errors(text: str) -> list[str]:
    """A path segment, the format of RBAC object names."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


@lru_cache(maxsize=4096)
def _qualified(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        description = _message(_KEY_FORMAT, _KEY, "MyName", "my.name", "123-abc")
        return (f"a valid label key {description} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    errors: list[str] = []
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif slash:
        errors += [f"prefix part {error}" for error in _subdomain(prefix, "bytes")]
    errors += [f"name part {error}" for error in (_too_long(name, 63, "bytes") if name else ["must be non-empty"])]
    if not _matches(_KEY, name):
        errors.append(f"name part {_message(_KEY_FORMAT, _KEY, 'MyName', 'my.name', '123-abc')}")
    return tuple(errors)


def qualified_name_errors(text: str) -> list[str]:
    """`example.com/name` or `name`, the format of label keys, annotation keys and finalizers."""
    return list(_qualified(text))


@lru_cache(maxsize=4096)
def _label_value(text: str) -> tuple[str, ...]:
    errors = _too_long(text, 63, "bytes")
    if not _matches(_VALUE, text):
        description = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
        errors.append(_message(description, _VALUE, "MyValue", "my_value", "12345"))
    return tuple(errors)


def label_value_errors(text: str) -> list[str]:
    return list(_label_value(text))


def config_key_errors(text: str) -> list[str]:
    """A key of a ConfigMap or Secret, which may become a file name."""
    errors = _too_long(text, 253)
    if not _matches(_CONFIG_KEY, text):
        description = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        errors.append(_message(description, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        errors.append(f"must not be '{text}'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return errors


def environment_name_errors(text: str) -> list[str]:
    """The name of an environment variable, which is printable ASCII without `=`."""
    if not text:
        return ["environment variable name must be non-empty"]
    # Pods have more of these than of other names, and string methods are faster than a regular expression.
    if text.isascii() and text.isprintable() and "=" not in text:
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def port_name_errors(text: str) -> list[str]:
    errors = _too_long(text, 15)
    if not _matches("[-a-z0-9]+", text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def generate_name_errors(prefix: str, validate: Callable[[str], list[str]]) -> list[str]:
    """The errors of a name prefix, which may end in a dash because a suffix follows."""
    return validate(f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix)
