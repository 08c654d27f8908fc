"""Credentials of a temporary cluster: bearer tokens, the signing key of service account tokens, kubeconfig files.

This module uses only the standard library, so that a cluster can start before any package is installed.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

ADMIN = "admin"

# RFC 5915: SEQUENCE { INTEGER 1, OCTET STRING (32 bytes), [0] { OID prime256v1 } }. The public key is optional and omitted.
_KEY_PREFIX = bytes.fromhex("30310201010420")
_KEY_SUFFIX = bytes.fromhex("a00a06082a8648ce3d030107")
# The order n of the group P-256. A private key is a number from 1 to n - 1.
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def write_signing_key(path: Path) -> None:
    """Write a new EC private key as PEM, with which an API server signs and verifies service account tokens."""
    scalar = 1 + secrets.randbelow(_P256_ORDER - 1)
    der = _KEY_PREFIX + scalar.to_bytes(32, "big") + _KEY_SUFFIX
    body = base64.encodebytes(der).decode()
    write_secret(path, f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n")


def write_tokens(path: Path, *, users: tuple[str, ...]) -> dict[str, str]:
    """Write the token file of the API server. Only the admin has permissions. Returns the tokens by user."""
    tokens = {user: secrets.token_urlsafe(24) for user in (ADMIN, *users)}
    lines = [f'{token},{user},{user},"{"system:masters" if user == ADMIN else ""}"' for user, token in tokens.items()]
    write_secret(path, "\n".join(lines) + "\n")
    return tokens


def read_tokens(path: Path) -> dict[str, str]:
    """The tokens of the token file, by user."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    return {row[1]: row[0] for row in rows}


def write_kubeconfig(path: Path, *, url: str, ca_pem: bytes, user: str, token: str) -> None:
    """Write a self-contained kubeconfig. Its format is JSON, a subset of YAML."""
    name = "dlop"
    content: Mapping[str, object] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": base64.b64encode(ca_pem).decode()}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    }
    write_secret(path, json.dumps(content, indent=2) + "\n")


def write_secret(path: Path, content: str) -> None:
    """Write a file atomically, readable only by its owner."""
    temporary = path.with_name(path.name + ".part")
    temporary.touch(mode=0o600)
    temporary.write_text(content)
    temporary.replace(path)
