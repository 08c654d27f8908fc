"""ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import json

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, forbidden, invalid, required
from dlop.embedded.apiserver.name_validation import config_key_errors
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import CONFIG_MAPS, SECRETS
from dlop.kube.types import JsonObject

_ACCOUNT_NAME = "kubernetes.io/service-account.name"
MAX_BYTES = 1024 * 1024
_CONFIG_MAP, _SECRET = "core.v1.ConfigMap", "core.v1.Secret"
# Required keys per secret type.
_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


class _ConfigMapStrategy(BuiltinStrategy):
    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if old is not None and old.get("immutable"):
            errors += _immutable_errors(body, old, ("data", "binaryData"))
        data, binary = body.get("data") or {}, body.get("binaryData") or {}
        for key in data:
            errors += [invalid(f"data[{key}]", key, detail) for detail in config_key_errors(key)]
            if key in binary:
                errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        for key in binary:
            errors += [invalid(f"binaryData[{key}]", key, detail) for detail in config_key_errors(key)]
        size = sum(len(value.encode()) for value in data.values()) + sum(len(base64.b64decode(value)) for value in binary.values())
        if size > MAX_BYTES:
            errors.append(FieldError(FieldErrorType.TOO_LONG, "[]", f"may not be more than {MAX_BYTES} bytes"))
        return errors


class _SecretStrategy(BuiltinStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        return _without_string_data({**body, "type": body.get("type") or "Opaque"})

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return _without_string_data({**body, "type": body.get("type") or old.get("type") or "Opaque"})

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if old is not None:
            if body["type"] != old["type"]:
                errors.append(invalid("type", body["type"], "field is immutable"))
            if old.get("immutable"):
                errors += _immutable_errors(body, old, ("data",))
        return errors + _secret_data_errors(body)


def _secret_data_errors(body: JsonObject) -> list[FieldError]:
    data: dict[str, str] = body.get("data") or {}
    errors: list[FieldError] = []
    for key in data:
        errors += [invalid(f"data[{key}]", key, detail) for detail in config_key_errors(key)]
    if sum(len(base64.b64decode(value)) for value in data.values()) > MAX_BYTES:
        errors.append(FieldError(FieldErrorType.TOO_LONG, "data", f"may not be more than {MAX_BYTES} bytes"))
    if body["type"] == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        errors += [required("data[username]"), required("data[password]")]
    if body["type"] == "kubernetes.io/service-account-token" and not (body["metadata"].get("annotations") or {}).get(_ACCOUNT_NAME):
        errors.append(required(f"metadata.annotations[{_ACCOUNT_NAME}]"))
    for key in _REQUIRED_KEYS.get(body["type"], ()):
        if key not in data:
            errors.append(required(f"data[{key}]"))
        elif key.startswith(".docker") and not _is_json(data[key]):
            errors.append(invalid(f"data[{key}]", "<secret contents redacted>", "invalid character in JSON"))
    return errors


def _is_json(encoded: str) -> bool:
    try:
        json.loads(base64.b64decode(encoded))
    except ValueError:
        return False
    return True


def _immutable_errors(body: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> list[FieldError]:
    detail = "field is immutable when `immutable` is set"
    changed = [field for field in fields if (body.get(field) or {}) != (old.get(field) or {})]
    return [forbidden(field, detail) for field in changed + ([] if body.get("immutable") else ["immutable"])]


def _without_string_data(body: JsonObject) -> JsonObject:
    """Move `stringData`, which is write-only, into `data`."""
    strings = body.pop("stringData", None)
    if strings:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in strings.items()}
        body["data"] = {**(body.get("data") or {}), **encoded}
    return body


def config_types() -> list[ResourceType]:
    entries = column("Data", lambda body: len(body.get("data") or {}) + len(body.get("binaryData") or {}))
    kind = column("Type", lambda secret: secret.get("type", ""))
    return [
        builtin_type(CONFIG_MAPS, _CONFIG_MAP, strategy=_ConfigMapStrategy(_CONFIG_MAP), short_names=("cm",), columns=columns(entries)),
        builtin_type(SECRETS, _SECRET, strategy=_SecretStrategy(_SECRET), columns=columns(kind, entries), fields={"type": ("type",)}),
    ]
