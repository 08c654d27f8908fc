"""In which order the objects of files are created, whatever their order there: what others need comes first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import yaml

from dlop.jobs.manifest_files import Document

_FIRST = (
    *("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role"),
    *("RoleBinding", "ConfigMap", "Secret", "Service"),
)
_LAST = len(_FIRST)


def in_order(documents: Iterable[Document]) -> list[Document]:
    """Lists taken apart, and everything in the order in which it is needed; else as it stands in the files."""
    return sorted((item for document in documents for item in _taken_apart(document)), key=_place)


def namespaces_of(documents: Iterable[Document]) -> list[str]:
    """The namespaces that objects are to be in and that the files do not bring themselves."""
    bodies = [document.content for document in documents if isinstance(document.content, dict)]
    brought = {_metadata(body).get("name") for body in bodies if body.get("kind") == "Namespace"}
    named = [_metadata(body).get("namespace") for body in bodies]
    return list(dict.fromkeys(name for name in named if isinstance(name, str) and name not in brought))


def _metadata(body: dict[str, object]) -> dict[str, object]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _place(document: Document) -> int:
    kind = document.content.get("kind") if isinstance(document.content, dict) else None
    return _FIRST.index(kind) if kind in _FIRST else _LAST


def _taken_apart(document: Document) -> Iterator[Document]:
    content, node = document.content, document.node
    if not isinstance(content, dict) or content.get("kind") != "List" or not isinstance(content.get("items"), list):
        yield document
        return
    nodes = next(value.value for key, value in node.value if isinstance(value, yaml.SequenceNode) and key.value == "items")
    for item, place in zip(content["items"], nodes, strict=True):
        yield Document(document.name, item, place)
