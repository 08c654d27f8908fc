"""The order in which the objects of files are created: dependencies first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import yaml

from dlop.jobs.manifest_files import Document

_KIND_ORDER = (
    *("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role"),
    *("RoleBinding", "ConfigMap", "Secret", "Service"),
)
_OTHERS = len(_KIND_ORDER)


def sort_for_creation(documents: Iterable[Document]) -> list[Document]:
    """Expand lists and sort by kind. Objects of the same kind keep their order."""
    return sorted((item for document in documents for item in _expand_list(document)), key=_order_of)


def undeclared_namespaces(documents: Iterable[Document]) -> list[str]:
    """Namespaces that are used by the objects but not created by the files."""
    bodies = [document.content for document in documents if isinstance(document.content, dict)]
    declared = {_metadata(body).get("name") for body in bodies if body.get("kind") == "Namespace"}
    used = [_metadata(body).get("namespace") for body in bodies]
    return list(dict.fromkeys(name for name in used if isinstance(name, str) and name not in declared))


def _metadata(body: dict[str, object]) -> dict[str, object]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _order_of(document: Document) -> int:
    kind = document.content.get("kind") if isinstance(document.content, dict) else None
    return _KIND_ORDER.index(kind) if kind in _KIND_ORDER else _OTHERS


def _expand_list(document: Document) -> Iterator[Document]:
    content, node = document.content, document.node
    if not isinstance(content, dict) or content.get("kind") != "List" or not isinstance(content.get("items"), list):
        yield document
        return
    nodes = next(value.value for key, value in node.value if isinstance(value, yaml.SequenceNode) and key.value == "items")
    for item, item_node in zip(content["items"], nodes, strict=True):
        yield Document(document.name, item, item_node)
