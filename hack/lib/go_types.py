"""Generates the field tables of the embedded API server from the Go structs of k8s.io/api and k8s.io/apimachinery.

    python hack/lib/go_types.py ~/go/pkg/mod/k8s.io v0.36.3 dlop/embedded/apiserver/core

writes `go_types.json` (JSON fields of the built-in types) and `protobuf.json` (their protobuf field numbers). Run it for a new
Kubernetes version. `tests/conformance/test_builtin_schemas.py` compares the result with a real API server.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

API_GROUPS = (
    "core/v1",
    "events/v1",
    "coordination/v1",
    "discovery/v1",
    "rbac/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "policy/v1",
    "scheduling/v1",
)
SERVED_TYPES = (
    *(f"core.v1.{kind}" for kind in ["Pod", "Service", "Namespace", "ConfigMap", "Secret", "ServiceAccount", "Event", "Node", "Endpoints"]),
    *(f"rbac.v1.{kind}" for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    "events.v1.Event",
    "coordination.v1.Lease",
    "discovery.v1.EndpointSlice",
    "autoscaling.v2.HorizontalPodAutoscaler",
    "scheduling.v1.PriorityClass",
)
REQUEST_TYPES = ("autoscaling.v1.HorizontalPodAutoscaler", "core.v1.Binding", "meta.v1.DeleteOptions", "policy.v1.Eviction")
"""Types that clients send in protobuf and that are not stored."""
BASIC_TYPES = ("string", "bool", "int32", "int64", "byte", "any", "Time", "MicroTime", "Quantity", "IntOrString")
LEAF_TYPES = {
    "metav1.Time": "Time",
    "metav1.MicroTime": "MicroTime",
    "metav1.Duration": "string",
    "resource.Quantity": "Quantity",
    "intstr.IntOrString": "IntOrString",
    "runtime.RawExtension": "any",
    "FieldsV1": "any",
    "types.UID": "types.UID",
    "types.NodeName": "types.NodeName",
}
"""Types that marshal to JSON in a form of their own."""
PACKAGE_ALIASES = {"v1": "core.v1", "metav1": "meta.v1"}
TypeTable = dict[str, str | dict[str, str]]


class StructField(NamedTuple):
    """One field of a Go struct."""

    go_type: str
    tag: str
    json_name: str
    json_options: tuple[str, ...]

    @property
    def protobuf_number(self) -> str:
        """Empty if the field is not part of the message."""
        match = re.search(r'protobuf:"\w+,(\d+),', self.tag)
        return match[1] if match else ""


@dataclass
class GoSource:
    """The type declarations of all packages by `package.Name`, and the import aliases of the files that declare them."""

    structs: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    imports: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def read(self, package: str, folder: Path) -> None:
        """Parse the Go files of a folder."""
        for path in sorted(folder.glob("*.go")):
            if "generated" in path.name or path.name.endswith("_test.go"):
                continue
            text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
            imports = dict(re.findall(r'^\s*(\w+)\s+"k8s.io/api/(\w+/\w+)"', text, flags=re.MULTILINE))
            for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, flags=re.DOTALL | re.MULTILINE):
                self.structs[f"{package}.{name}"] = body
                self.imports[f"{package}.{name}"] = imports
            for name, target in re.findall(r"^type (\w+) ([\w\[\].*]+)$", text, flags=re.MULTILINE):
                self.aliases[f"{package}.{name}"] = target
                self.imports[f"{package}.{name}"] = imports

    def resolve(self, owner: str, go_type: str) -> str:
        """A type as written in the declaration of `owner`, with qualified names."""
        for prefix in ("*", "[]"):
            if go_type.startswith(prefix):
                return prefix + self.resolve(owner, go_type.removeprefix(prefix))
        if match := re.match(r"map\[[\w.]+\](.*)$", go_type):
            return f"map:{self.resolve(owner, match[1])}"
        if go_type in LEAF_TYPES or go_type in BASIC_TYPES:
            # In its own package, Time is written without a prefix.
            return LEAF_TYPES.get(go_type, go_type)
        if "." not in go_type:
            return f"{owner.rpartition('.')[0]}.{go_type}"
        alias, _, name = go_type.partition(".")
        imported = self.imports[owner].get(alias)
        return f"{imported.replace('/', '.') if imported else PACKAGE_ALIASES[alias]}.{name}"

    def fields(self, struct: str) -> Iterator[StructField]:
        """The fields of a struct that are part of its JSON form."""
        for line in self.structs[struct].splitlines():
            tag = re.search(r"`(.*)`", line)
            if line.strip().startswith("//") or tag is None or "json:" not in tag[1]:
                continue
            json_name, *options = re.findall(r'json:"([^"]*)"', tag[1])[0].split(",")
            yield StructField(line.split("`")[0].split()[-1], tag[1], json_name, tuple(options))


def json_fields(source: GoSource, struct: str) -> Iterator[tuple[str, str]]:
    """JSON name, and type with options, of each field of a struct and of the structs that it embeds."""
    for each in source.fields(struct):
        if each.go_type.endswith("TypeMeta"):
            yield from (("kind", "string omitempty"), ("apiVersion", "string omitempty"))
        elif not each.json_name:
            yield from json_fields(source, source.resolve(struct, each.go_type))
        else:
            yield each.json_name, " ".join([source.resolve(struct, each.go_type), *_options(each)])


def _options(struct_field: StructField) -> Iterator[str]:
    yield from (option for option in struct_field.json_options if option in ("omitempty", "omitzero"))
    strategy = re.search(r'patchStrategy:"([^"]*)"', struct_field.tag)
    key = re.search(r'patchMergeKey:"([^"]*)"', struct_field.tag)
    if strategy and "merge" in strategy[1]:
        yield f"merge={key[1]}" if key else "merge"


def protobuf_fields(source: GoSource, struct: str) -> Iterator[tuple[str, str]]:
    """JSON name and protobuf number of each field; `2.1` is field 1 of the embedded message in field 2."""
    for each in source.fields(struct):
        if not each.protobuf_number:
            continue
        if each.json_name:
            yield each.json_name, each.protobuf_number
        else:
            embedded = source.resolve(struct, each.go_type)
            yield from ((name, f"{each.protobuf_number}.{number}") for name, number in protobuf_fields(source, embedded))


def element_type(go_type: str) -> str:
    """The type of the items of lists and maps."""
    return re.sub(r"^(\*|\[\]|map:)*", "", go_type.split(maxsplit=1)[0])


def type_table(source: GoSource, roots: tuple[str, ...]) -> TypeTable:
    """The roots and every type that they refer to."""
    table: TypeTable = {}
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in table or name in BASIC_TYPES:
            continue
        if name in source.structs:
            described = dict(json_fields(source, name))
            table[name] = described
            pending += [element_type(field_type) for field_type in described.values()]
        else:
            target = "string" if name.startswith("types.") else source.resolve(name, source.aliases[name])
            table[name] = target
            pending.append(element_type(target))
    return dict(sorted(table.items()))


def protobuf_table(source: GoSource) -> dict[str, dict[str, str]]:
    """Field numbers of every message that can be part of a request."""
    structs = [name for name, fields in type_table(source, (*SERVED_TYPES, *REQUEST_TYPES)).items() if isinstance(fields, dict)]
    return {name: dict(protobuf_fields(source, name)) for name in structs}


def read_source(modules: Path, version: str) -> GoSource:
    """The packages that the tables are made from; `modules` is the folder of k8s.io in Go's module cache."""
    source = GoSource()
    source.read("meta.v1", modules / f"apimachinery@{version}" / "pkg/apis/meta/v1")
    for group in API_GROUPS:
        source.read(group.replace("/", "."), modules / f"api@{version}" / group)
    return source


def main(modules: str, version: str, folder: str) -> None:
    source = read_source(Path(modules), version)
    for name, table in (("go_types.json", type_table(source, SERVED_TYPES)), ("protobuf.json", protobuf_table(source))):
        (Path(folder) / name).write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
