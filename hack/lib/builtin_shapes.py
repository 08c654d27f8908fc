"""Makes the embedded server's table of built-in fields from the Go structs of k8s.io/api and k8s.io/apimachinery.

    python hack/lib/builtin_shapes.py ~/go/pkg/mod/k8s.io v0.36.3 > dlop/embedded/apiserver/core/go_types.json

Only for a new Kubernetes version. That the table fits the real server is checked by tests/conformance/test_shapes.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

GROUPS = ("core/v1", "events/v1", "coordination/v1", "discovery/v1", "rbac/v1", "autoscaling/v2", "scheduling/v1")
ROOTS = (
    *(f"core.v1.{kind}" for kind in ["Pod", "Service", "Namespace", "ConfigMap", "Secret", "ServiceAccount", "Event", "Node", "Endpoints"]),
    *(f"rbac.v1.{kind}" for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    "events.v1.Event",
    "coordination.v1.Lease",
    "discovery.v1.EndpointSlice",
    "autoscaling.v2.HorizontalPodAutoscaler",
    "scheduling.v1.PriorityClass",
)
BASIC = ("string", "bool", "int32", "int64", "byte", "any", "Time", "MicroTime", "Quantity", "IntOrString")
# Types with a JSON form of their own.
LEAVES = {
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
PACKAGES = {"v1": "core.v1", "metav1": "meta.v1"}
Shapes = dict[str, str | dict[str, str]]


@dataclass
class Source:
    """The struct and type declarations of all packages, by `package.Name`, and what other packages are called in each file."""

    structs: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    imports: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def read(self, package: str, folder: Path) -> None:
        """Take in the Go files of a folder."""
        for path in sorted(folder.glob("*.go")):
            if "generated" in path.name or path.name.endswith("_test.go"):
                continue
            text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
            imports = dict(re.findall(r'^\s*(\w+)\s+"k8s.io/api/(\w+/\w+)"', text, flags=re.MULTILINE))
            for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, flags=re.DOTALL | re.MULTILINE):
                self.structs[f"{package}.{name}"] = body
                self.imports[f"{package}.{name}"] = imports
            for name, made_of in re.findall(r"^type (\w+) ([\w\[\].*]+)$", text, flags=re.MULTILINE):
                self.names[f"{package}.{name}"] = made_of
                self.imports[f"{package}.{name}"] = imports

    def resolve(self, owner: str, go_type: str) -> str:
        """A type as written in the declaration of `owner`, with full names."""
        for prefix in ("*", "[]"):
            if go_type.startswith(prefix):
                return prefix + self.resolve(owner, go_type.removeprefix(prefix))
        if match := re.match(r"map\[[\w.]+\](.*)$", go_type):
            return f"map:{self.resolve(owner, match[1])}"
        package = owner.rpartition(".")[0]
        if go_type in LEAVES or go_type in BASIC:
            # Inside its own package, Time is a leaf as well.
            return LEAVES.get(go_type, go_type)
        if "." not in go_type:
            return f"{package}.{go_type}"
        alias, _, name = go_type.partition(".")
        found = self.imports[owner].get(alias)
        return f"{found.replace('/', '.') if found else PACKAGES[alias]}.{name}"


def fields(source: Source, name: str) -> Iterator[tuple[str, str]]:
    """The fields of a struct, those of embedded structs among them, each described in words."""
    for line in source.structs[name].splitlines():
        tag = re.search(r"`(.*)`", line)
        if line.strip().startswith("//") or tag is None or "json:" not in tag[1]:
            continue
        declared = line.split("`")[0].split()
        json_name, *options = re.findall(r'json:"([^"]*)"', tag[1])[0].split(",")
        if declared[-1].endswith("TypeMeta"):
            yield from (("kind", "string omitempty"), ("apiVersion", "string omitempty"))
        elif not json_name:
            yield from fields(source, source.resolve(name, declared[-1]))
        else:
            yield json_name, " ".join([source.resolve(name, declared[-1]), *_words(tag[1], options)])


def _words(tag: str, options: list[str]) -> Iterator[str]:
    yield from (option for option in options if option in ("omitempty", "omitzero"))
    strategy, key = re.search(r'patchStrategy:"([^"]*)"', tag), re.search(r'patchMergeKey:"([^"]*)"', tag)
    if strategy and "merge" in strategy[1]:
        yield f"merge={key[1]}" if key else "merge"


def innermost(go_type: str) -> str:
    """The type of the items of lists and maps."""
    return re.sub(r"^(\*|\[\]|map:)*", "", go_type.split(maxsplit=1)[0])


def shapes(source: Source, roots: tuple[str, ...]) -> Shapes:
    """The description of the root types and of everything that they are made of."""
    found: Shapes = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found or name in BASIC:
            continue
        if name in source.structs:
            described = dict(fields(source, name))
            found[name] = described
            waiting += [innermost(words) for words in described.values()]
        else:
            made_of = "string" if name.startswith("types.") else source.resolve(name, source.names[name])
            found[name] = made_of
            waiting.append(innermost(made_of))
    return dict(sorted(found.items()))


def main(modules: str, version: str) -> None:
    source = Source()
    source.read("meta.v1", Path(modules) / f"apimachinery@{version}" / "pkg/apis/meta/v1")
    for group in GROUPS:
        source.read(group.replace("/", "."), Path(modules) / f"api@{version}" / group)
    print(json.dumps(shapes(source, ROOTS), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
