"""An unmodified kubectl says and does the same on both servers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import pytest_asyncio
from kubernetes_build import require_assets

from dlop.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICES, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map, custom, definition, owner, pod, schema, service, version
from tests.conformance.kubectl import Kubectl
from tests.conformance.support import PATIENCE_SECONDS, Api, only_on

pytestmark = only_on("embedded", "real", because="kubectl needs a socket to talk to")

GADGETS = Resource("kubectl.dlop.dev", "v1", "gadgets", "Gadget")
_COLUMNS = [
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def gadget_definition() -> JsonObject:
    spec = {
        "type": "object",
        "description": "What a gadget should be.",
        "required": ["replicas"],
        "properties": {
            "replicas": {"type": "integer", "minimum": 0, "description": "How many."},
            "color": {"type": "string", "enum": ["red", "green"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    condition = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}, "conditions": {"type": "array", "items": condition}}}
    root = {**schema(spec=spec, status=status), "description": "A gadget is a thing to try kubectl on.", "required": ["spec"]}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    made = version("v1", root, subresources={"status": {}, "scale": scale}, additionalPrinterColumns=_COLUMNS)
    return definition(GADGETS, made, shortNames=["gd"], categories=["all"])


def gadget(name: str, *, replicas: int = 1, **spec: object) -> JsonObject:
    return custom(GADGETS, name, spec={"replicas": replicas, **spec})


@pytest.fixture(scope="session")
def kubectl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubectl")


@pytest_asyncio.fixture(loop_scope="session")
async def kubectl(api: Api, kubectl_folder: Path) -> Kubectl:
    await api.install(gadget_definition())
    return Kubectl(require_assets(("kubectl",))["kubectl"], api, kubectl_folder / api.server.name)


# --- create and apply ------------------------------------------------------------------------------------------------


async def test_create_makes_every_object_of_a_file(kubectl: Kubectl) -> None:
    both = "\n---\n".join(json.dumps(body) for body in (config_map("a", {"k": "v"}), gadget("b")))
    said = await kubectl("create", "-f", "-", stdin=both)
    assert said.out == "configmap/a created\ngadget.kubectl.dlop.dev/b created\n"
    assert (await kubectl.api.get(CONFIG_MAPS, "a"))["data"] == {"k": "v"}


async def test_creating_twice_fails_with_already_exists(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=gadget("a"))
    assert await kubectl.fails("create", "-f", "-", stdin=gadget("a")) == (
        'Error from server (AlreadyExists): error when creating "STDIN": gadgets.kubectl.dlop.dev "a" already exists\n'
    )


async def test_apply_creates_then_changes_nothing_then_configures_a_custom_resource(kubectl: Kubectl) -> None:
    named = "gadget.kubectl.dlop.dev/a"
    assert (await kubectl("apply", "-f", "-", stdin=gadget("a", color="red"))).out == f"{named} created\n"
    assert (await kubectl("apply", "-f", "-", stdin=gadget("a", color="red"))).out == f"{named} unchanged\n"
    assert (await kubectl("apply", "-f", "-", stdin=gadget("a", replicas=2))).out == f"{named} configured\n"
    assert (await kubectl.api.get(GADGETS, "a"))["spec"] == {"replicas": 2}


async def test_apply_removes_a_container_port_by_its_merge_key(kubectl: Kubectl) -> None:
    def ports(*numbers: int) -> JsonObject:
        body = service("a")
        body["spec"]["ports"] = [{"name": f"p{number}", "port": number} for number in numbers]
        return body

    assert (await kubectl("apply", "-f", "-", stdin=ports(80, 81))).out == "service/a created\n"
    assert (await kubectl("apply", "-f", "-", stdin=ports(80, 81))).out == "service/a unchanged\n"
    assert (await kubectl("apply", "-f", "-", stdin=ports(81, 82))).out == "service/a configured\n"
    said = await kubectl("get", "service", "a", "-o", "jsonpath={.spec.ports[*].port}")
    assert sorted(said.out.split()) == ["81", "82"]


async def test_apply_of_a_definition_can_be_repeated_and_changed(kubectl: Kubectl) -> None:
    parts = Resource("kubectl.dlop.dev", "v1", f"parts{kubectl.api.namespace.removeprefix('case-')}", f"Part{kubectl.api.namespace[5:]}")
    body = definition(parts, version("v1", schema(spec={"type": "object"})))
    named = f"customresourcedefinition.apiextensions.k8s.io/{parts.qualified_name}"
    assert (await kubectl("apply", "-f", "-", stdin=body)).out == f"{named} created\n"
    assert (await kubectl("wait", "--for=condition=Established", "crd", parts.qualified_name)).out == f"{named} condition met\n"
    assert (await kubectl("apply", "-f", "-", stdin=body)).out == f"{named} unchanged\n"
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = {"n": {"type": "integer"}}
    assert (await kubectl("apply", "-f", "-", stdin=body)).out == f"{named} configured\n"
    await kubectl("delete", "crd", parts.qualified_name)
    assert parts.qualified_name not in (await kubectl("get", "crds", "-o", "name")).out


async def test_dry_run_on_the_server_stores_nothing(kubectl: Kubectl) -> None:
    said = await kubectl("create", "--dry-run=server", "-f", "-", stdin=gadget("a"))
    assert said.out == "gadget.kubectl.dlop.dev/a created (server dry run)\n"
    assert await kubectl.api.find(GADGETS, "a") is None


async def test_a_config_map_is_created_from_literals(kubectl: Kubectl) -> None:
    assert (await kubectl("create", "configmap", "a", "--from-literal=x=1")).out == "configmap/a created\n"
    assert (await kubectl.api.get(CONFIG_MAPS, "a"))["data"] == {"x": "1"}


async def test_what_kubectl_sends_in_protobuf_arrives_whole(kubectl: Kubectl) -> None:
    """The commands that make an object from flags do not send JSON."""
    await kubectl("create", "secret", "generic", "a", "--from-literal=password=secret")
    assert (await kubectl.api.get(SECRETS, "a"))["data"] == {"password": "c2VjcmV0"}
    await kubectl("create", "service", "clusterip", "a", "--tcp=80:8080", "--tcp=81:web")
    ports = (await kubectl.api.get(SERVICES, "a"))["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in ports] == [(80, 8080), (81, "web")]
    await kubectl("create", "serviceaccount", "bot")
    await kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods", "--resource-name=a")
    assert (await kubectl.api.get(ROLES, "reader"))["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    ]
    await kubectl("create", "rolebinding", "readers", "--role=reader", "--user=eve")
    found = await kubectl.api.get(ROLE_BINDINGS, "readers")
    assert found["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    assert found["subjects"] == [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}]


async def test_a_pod_can_be_run_exposed_and_described_by_flags(kubectl: Kubectl) -> None:
    said = await kubectl("run", "a", "--image=none", "--env=X=1", "--port=80", "--labels=app=a", "--", "sleep", "1")
    assert said.out == "pod/a created\n"
    assert (await kubectl("expose", "pod", "a", "--port=80", "--target-port=8080")).out == "service/a exposed\n"
    container = (await kubectl.api.get(PODS, "a"))["spec"]["containers"][0]
    assert (container["args"], container["env"]) == (["sleep", "1"], [{"name": "X", "value": "1"}])
    assert (await kubectl.api.get(SERVICES, "a"))["spec"]["selector"] == {"app": "a"}


async def test_the_version_of_the_server_is_the_one_of_this_kubectl(kubectl: Kubectl) -> None:
    found = json.loads((await kubectl("version", "-o", "json")).out)
    assert found["serverVersion"]["gitVersion"] == found["clientVersion"]["gitVersion"]


async def test_a_namespace_is_created_shown_and_deleted(kubectl: Kubectl) -> None:
    name = f"{kubectl.api.namespace}-more"
    assert (await kubectl("create", "namespace", name)).out == f"namespace/{name} created\n"
    assert (await kubectl("get", "namespace", name)).table == [["NAME", "STATUS", "AGE"], [name, "Active", "AGE"]]
    assert (await kubectl("delete", "namespace", name)).out == f'namespace "{name}" deleted\n'
    assert await kubectl.api.find(NAMESPACES, name) is None


# --- get -------------------------------------------------------------------------------------------------------------


async def test_get_shows_the_printer_columns_of_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a", replicas=2, color="red"))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await kubectl.api.patch(GADGETS, "a", ready, subresource="status")
    await kubectl.api.create(GADGETS, gadget("b"))
    said = await kubectl("get", "gadgets")
    assert said.table == [["NAME", "REPLICAS", "READY", "AGE"], ["a", "2", "True", "AGE"], ["b", "1", "AGE"]]
    wide = await kubectl("get", "gd", "a", "-o", "wide")
    assert wide.table == [["NAME", "REPLICAS", "READY", "COLOR", "AGE"], ["a", "2", "True", "red", "AGE"]]


async def test_get_shows_pods_as_people_know_them(kubectl: Kubectl) -> None:
    await kubectl.api.create(PODS, pod("a"))
    assert (await kubectl("get", "pods")).table == [["NAME", "READY", "STATUS", "RESTARTS", "AGE"], ["a", "0/1", "Pending", "0", "AGE"]]
    wide = (await kubectl("get", "po", "-o", "wide")).table
    assert wide[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    assert wide[1] == ["a", "0/1", "Pending", "0", "AGE", "<none>", "<none>", "<none>", "<none>"]


async def test_get_shows_services_and_config_maps(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=service("a"))
    await kubectl.api.create(CONFIG_MAPS, config_map("b", {"x": "1", "y": "2"}))
    assert (await kubectl("get", "svc")).table == [
        ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"],
        ["a", "ClusterIP", "None", "<none>", "80/TCP", "AGE"],
    ]
    assert (await kubectl("get", "cm", "b")).table == [["NAME", "DATA", "AGE"], ["b", "2", "AGE"]]


async def test_get_all_shows_every_resource_of_the_category(kubectl: Kubectl) -> None:
    await kubectl.api.create(PODS, pod("a"))
    await kubectl.api.create(GADGETS, gadget("b"))
    names = [line[0] for line in (await kubectl("get", "all")).table if line and line[0] != "NAME"]
    assert names == ["pod/a", "gadget.kubectl.dlop.dev/b"]


async def test_get_in_json_and_yaml_shows_the_whole_object(kubectl: Kubectl) -> None:
    stored = await kubectl.api.create(GADGETS, gadget("a", replicas=3))
    stored["metadata"].pop("managedFields", None)
    assert json.loads((await kubectl("get", "gadget", "a", "-o", "json")).out) == stored
    lines = (await kubectl("get", "gadget/a", "-o", "yaml")).out.splitlines()
    assert lines[0] == "apiVersion: kubectl.dlop.dev/v1"
    assert "  replicas: 3" in lines


async def test_get_by_jsonpath_name_and_custom_columns(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a", replicas=3))
    assert (await kubectl("get", "gd", "a", "-o", "jsonpath={.spec.replicas}")).out == "3"
    assert (await kubectl("get", "gd", "-o", "name")).out == "gadget.kubectl.dlop.dev/a\n"
    said = await kubectl("get", "gd", "-o", "custom-columns=N:.metadata.name,R:.spec.replicas")
    assert said.table == [["N", "R"], ["a", "3"]]


async def test_get_by_label_and_by_field_finds_only_what_matches(kubectl: Kubectl) -> None:
    for name, color in (("a", "red"), ("b", "green")):
        await kubectl.api.create(CONFIG_MAPS, config_map(name, labels={"color": color}))
    assert (await kubectl("get", "cm", "-l", "color in (red, blue)", "-o", "name")).out == "configmap/a\n"
    assert (await kubectl("get", "cm", "--field-selector", "metadata.name=b", "-o", "name")).out == "configmap/b\n"
    assert (await kubectl("get", "cm", "-L", "color", "a")).table == [["NAME", "DATA", "AGE", "COLOR"], ["a", "0", "AGE", "red"]]


async def test_get_of_nothing_says_so(kubectl: Kubectl) -> None:
    said = await kubectl("get", "gadgets")
    assert (said.out, said.err) == ("", f"No resources found in {kubectl.api.namespace} namespace.\n")
    assert await kubectl.fails("get", "gadget", "a") == 'Error from server (NotFound): gadgets.kubectl.dlop.dev "a" not found\n'
    assert await kubectl.fails("get", "pod", "a") == 'Error from server (NotFound): pods "a" not found\n'


async def test_get_of_an_unknown_resource_says_so(kubectl: Kubectl) -> None:
    assert await kubectl.fails("get", "gizmos") == 'error: the server doesn\'t have a resource type "gizmos"\n'


async def test_get_with_watch_prints_every_change(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    async with kubectl.running("get", "gadgets", "-w") as process, asyncio.timeout(PATIENCE_SECONDS):
        assert process.stdout is not None
        header, first = [await process.stdout.readline() for _ in range(2)]
        await kubectl.api.patch(GADGETS, "a", {"spec": {"replicas": 7}})
        second = await process.stdout.readline()
    assert header.split() == [b"NAME", b"REPLICAS", b"READY", b"AGE"]
    assert first.split()[:2] == [b"a", b"1"]
    assert second.split()[:2] == [b"a", b"7"]


async def test_get_events_shows_what_happened(kubectl: Kubectl) -> None:
    about = await kubectl.api.create(PODS, pod("a"))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "a",
            "namespace": kubectl.api.namespace,
            "uid": about["metadata"]["uid"],
        },
        "reason": "Tried",
        "message": "It was tried",
        "type": "Normal",
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "count": 1,
    }
    await kubectl("create", "-f", "-", stdin=event)
    table = (await kubectl("get", "events")).table
    assert table[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert table[1][1:] == ["Normal", "Tried", "pod/a", "It", "was", "tried"]
    assert "Tried" in (await kubectl("describe", "pod", "a")).out
    assert "Tried" in (await kubectl("events", "--for", "pod/a")).out


# --- describe and explain --------------------------------------------------------------------------------------------


def fields(text: str) -> dict[str, str]:
    """The first value that describe shows for each name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.strip().partition(":")
        if colon:
            found.setdefault(name, value.strip())
    return found


async def test_describe_shows_a_pod(kubectl: Kubectl) -> None:
    await kubectl.api.create(PODS, pod("a", labels={"app": "x"}))
    shown = fields((await kubectl("describe", "pod", "a")).out)
    expected = {"Name": "a", "Priority": "0", "Node": "<none>", "Labels": "app=x", "Status": "Pending", "Image": "none"}
    expected |= {"QoS Class": "BestEffort", "Events": "<none>", "Namespace": kubectl.api.namespace}
    assert {name: shown[name] for name in expected} == expected


async def test_describe_shows_a_service_and_a_config_map(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=service("a"))
    shown = fields((await kubectl("describe", "service", "a")).out)
    expected = {"Type": "ClusterIP", "IP": "None", "Selector": "app=a", "Port": "main  80/TCP", "Session Affinity": "None"}
    assert {name: shown[name] for name in expected} == expected
    await kubectl.api.create(CONFIG_MAPS, config_map("b", {"key": "value"}))
    assert "key:\n----\nvalue\n" in (await kubectl("describe", "cm", "b")).out


async def test_describe_shows_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a", replicas=2))
    shown = fields((await kubectl("describe", "gadget", "a")).out)
    expected = {"Name": "a", "API Version": "kubectl.dlop.dev/v1", "Kind": "Gadget", "Generation": "1", "Replicas": "2"}
    assert {name: shown[name] for name in expected} == expected


async def test_explain_shows_the_schema_of_a_custom_resource(kubectl: Kubectl) -> None:
    whole = (await kubectl("explain", "gadgets")).out
    assert whole.startswith("GROUP:      kubectl.dlop.dev\nKIND:       Gadget\nVERSION:    v1\n\nDESCRIPTION:\n    A gadget is a thing")
    assert "  spec\t<Object> -required-\n    What a gadget should be.\n" in whole
    assert "  metadata\t<ObjectMeta>\n" in whole
    assert (await kubectl("explain", "gd.spec.replicas")).out == (
        "GROUP:      kubectl.dlop.dev\nKIND:       Gadget\nVERSION:    v1\n\nFIELD: replicas <integer>\n\n\n"
        "DESCRIPTION:\n    How many.\n    \n\n"
    )
    assert await kubectl.fails("explain", "gd.spec.none") == 'error: field "none" does not exist\n'


async def test_explain_shows_the_fields_of_a_built_in_resource(kubectl: Kubectl) -> None:
    shown = (await kubectl("explain", "pod.spec.nodeName")).out
    assert shown.startswith("KIND:       Pod\nVERSION:    v1\n\nFIELD: nodeName <string>\n")


async def test_api_resources_lists_built_in_and_custom_resources(kubectl: Kubectl) -> None:
    said = await kubectl("api-resources", "--api-group=kubectl.dlop.dev", "--no-headers")
    assert ["gadgets", "gd", "kubectl.dlop.dev/v1", "true", "Gadget"] in said.table
    core = (await kubectl("api-resources", "--api-group=", "--no-headers")).table
    for line in (["pods", "po", "v1", "true", "Pod"], ["namespaces", "ns", "v1", "false", "Namespace"]):
        assert line in core
    assert "kubectl.dlop.dev/v1" in (await kubectl("api-versions")).out.splitlines()


# --- change ----------------------------------------------------------------------------------------------------------


async def test_patch_takes_merge_json_and_strategic_patches(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a", color="red"))
    patched = "gadget.kubectl.dlop.dev/a patched\n"
    assert (await kubectl("patch", "gd", "a", "--type=merge", "-p", '{"spec":{"replicas":2,"color":null}}')).out == patched
    operation = '[{"op":"replace","path":"/spec/replicas","value":5}]'
    assert (await kubectl("patch", "gd", "a", "--type=json", "-p", operation)).out == patched
    assert (await kubectl.api.get(GADGETS, "a"))["spec"] == {"replicas": 5}
    assert (await kubectl("patch", "gd", "a", "--type=merge", "-p", '{"spec":{"replicas":5}}')).out == patched.replace(
        "patched", "patched (no change)"
    )
    await kubectl.api.create(PODS, pod("b"))
    image = '{"spec":{"containers":[{"name":"main","image":"other"}]}}'
    assert (await kubectl("patch", "pod", "b", "-p", image)).out == "pod/b patched\n"
    assert (await kubectl.api.get(PODS, "b"))["spec"]["containers"][0]["image"] == "other"


async def test_patch_of_the_status_leaves_the_spec_alone(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    both = '{"spec":{"replicas":9},"status":{"replicas":4}}'
    await kubectl("patch", "gd", "a", "--subresource=status", "--type=merge", "-p", both)
    found = await kubectl.api.get(GADGETS, "a")
    assert (found["spec"], found["status"]) == ({"replicas": 1}, {"replicas": 4})


async def test_scale_changes_the_replicas_of_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    assert (await kubectl("scale", "gadget/a", "--replicas=4")).out == "gadget.kubectl.dlop.dev/a scaled\n"
    assert (await kubectl.api.get(GADGETS, "a"))["spec"]["replicas"] == 4
    assert "Expected replicas to be 9, was 4" in await kubectl.fails("scale", "gadget/a", "--current-replicas=9", "--replicas=1")


async def test_label_and_annotate_change_metadata(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    assert (await kubectl("label", "gd", "a", "x=1", "y=2")).out == "gadget.kubectl.dlop.dev/a labeled\n"
    assert (await kubectl("label", "gd", "a", "y-")).out == "gadget.kubectl.dlop.dev/a unlabeled\n"
    assert (await kubectl("annotate", "gd", "a", "note=short")).out == "gadget.kubectl.dlop.dev/a annotated\n"
    found = (await kubectl.api.get(GADGETS, "a"))["metadata"]
    assert (found["labels"], found["annotations"]) == ({"x": "1"}, {"note": "short"})
    assert "already has a value (1), and --overwrite is false" in await kubectl.fails("label", "gd", "a", "x=3")


async def test_replace_needs_the_object_to_be_there(kubectl: Kubectl) -> None:
    await kubectl.api.create(CONFIG_MAPS, config_map("a", {"x": "1"}))
    assert (await kubectl("replace", "-f", "-", stdin=config_map("a", {"y": "2"}))).out == "configmap/a replaced\n"
    assert (await kubectl.api.get(CONFIG_MAPS, "a"))["data"] == {"y": "2"}
    assert await kubectl.fails("replace", "-f", "-", stdin=config_map("b")) == (
        'Error from server (NotFound): error when replacing "STDIN": configmaps "b" not found\n'
    )


async def test_edit_like_conflicts_are_reported(kubectl: Kubectl) -> None:
    first = await kubectl.api.create(GADGETS, gadget("a"))
    await kubectl.api.patch(GADGETS, "a", {"spec": {"replicas": 2}})
    complaint = await kubectl.fails("replace", "-f", "-", stdin=first)
    assert complaint == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on gadgets.kubectl.dlop.dev "a": '
        "the object has been modified; please apply your changes to the latest version and try again\n"
    )


# --- wait and delete -------------------------------------------------------------------------------------------------


async def test_wait_returns_when_a_condition_or_a_field_is_as_wanted(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    met = "gadget.kubectl.dlop.dev/a condition met\n"
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Ready", "gadget/a", "--timeout=30s"))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await kubectl.api.patch(GADGETS, "a", ready, subresource="status")
    assert (await waiting).out == met
    assert (await kubectl("wait", "--for=jsonpath={.spec.replicas}=1", "gadget/a")).out == met


async def test_wait_gives_up_after_its_timeout(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    complaint = await kubectl.fails("wait", "--for=condition=Ready", "gadget/a", "--timeout=100ms")
    assert complaint == "error: timed out waiting for the condition on gadgets/a\n"


async def test_wait_for_deletion_returns_when_the_object_is_gone(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    waiting = asyncio.create_task(kubectl("wait", "--for=delete", "gadget/a", "--timeout=30s"))
    await kubectl.api.delete(GADGETS, "a")
    assert (await waiting).err == ""
    assert await kubectl.api.find(GADGETS, "a") is None


async def test_delete_by_name_and_by_label(kubectl: Kubectl) -> None:
    namespace = kubectl.api.namespace
    for name in ("a", "b", "c"):
        await kubectl.api.create(CONFIG_MAPS, config_map(name, labels={"keep": "no" if name != "c" else "yes"}))
    assert (await kubectl("delete", "cm", "a")).out == f'configmap "a" deleted from {namespace} namespace\n'
    assert (await kubectl("delete", "cm", "-l", "keep=no")).out == f'configmap "b" deleted from {namespace} namespace\n'
    assert await kubectl.fails("delete", "cm", "a") == 'Error from server (NotFound): configmaps "a" not found\n'
    assert (await kubectl("delete", "cm", "a", "--ignore-not-found")).out == ""
    assert await kubectl.api.find(CONFIG_MAPS, "c") is not None


async def test_delete_waits_for_an_object_that_a_finalizer_holds(kubectl: Kubectl) -> None:
    held = gadget("a")
    held["metadata"]["finalizers"] = ["dlop.dev/hold"]
    await kubectl.api.create(GADGETS, held)
    waiting = asyncio.create_task(kubectl("delete", "gadget", "a"))
    await kubectl.api.changed(GADGETS, "a", lambda found: "deletionTimestamp" in found["metadata"])
    await kubectl.api.patch(GADGETS, "a", {"metadata": {"finalizers": None}})
    assert (await waiting).out == f'gadget.kubectl.dlop.dev "a" deleted from {kubectl.api.namespace} namespace\n'


async def test_delete_of_a_running_pod_with_force_does_not_wait_for_its_node(kubectl: Kubectl) -> None:
    await kubectl.api.create(PODS, pod("a", node="nowhere"))
    said = await kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    assert said.out == f'pod "a" force deleted from {kubectl.api.namespace} namespace\n'
    assert said.err.startswith("Warning: Immediate deletion does not wait for confirmation")
    assert await kubectl.api.find(PODS, "a") is None


@pytest.mark.parametrize(("cascade", "child_stays"), [("background", False), ("foreground", False), ("orphan", True)])
async def test_delete_treats_owned_objects_as_cascade_says(kubectl: Kubectl, cascade: str, *, child_stays: bool) -> None:
    api = kubectl.api
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(CONFIG_MAPS, config_map("child", ownerReferences=[owner(parent, block=True)]))
    await kubectl("delete", "cm", "parent", f"--cascade={cascade}")
    if child_stays:
        assert (
            "ownerReferences"
            not in (await api.changed(CONFIG_MAPS, "child", lambda found: "ownerReferences" not in found["metadata"]))["metadata"]
        )
    else:
        await api.gone(CONFIG_MAPS, "child")


# --- mistakes --------------------------------------------------------------------------------------------------------


async def test_an_invalid_custom_resource_is_refused_field_by_field(kubectl: Kubectl) -> None:
    complaint = await kubectl.fails("create", "-f", "-", stdin=gadget("a", replicas=-1, color="blue"))
    lines = complaint.splitlines()
    assert lines[0] == 'The Gadget "a" is invalid: '
    assert '* spec.color: Unsupported value: "blue": supported values: "red", "green"' in lines
    assert "* spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0" in lines


async def test_an_unknown_field_is_refused_strictly_warned_of_or_ignored(kubectl: Kubectl) -> None:
    body = gadget("a", colour="red")
    strict = await kubectl.fails("create", "-f", "-", stdin=body)
    assert strict == (
        'Error from server (BadRequest): error when creating "STDIN": Gadget in version "v1" cannot be handled as a Gadget: '
        'strict decoding error: unknown field "spec.colour"\n'
    )
    warned = await kubectl("create", "--validate=warn", "-f", "-", stdin=body)
    assert (warned.out, warned.err) == ("gadget.kubectl.dlop.dev/a created\n", 'Warning: unknown field "spec.colour"\n')
    ignored = await kubectl("create", "--validate=ignore", "-f", "-", stdin=gadget("b", colour="red"))
    assert ignored.err == ""
    assert (await kubectl.api.get(GADGETS, "b"))["spec"] == {"replicas": 1}


async def test_an_unknown_field_of_a_pod_is_refused(kubectl: Kubectl) -> None:
    complaint = await kubectl.fails("apply", "--validate=strict", "-f", "-", stdin=pod("a", spec={"nodename": "x"}))
    assert 'strict decoding error: unknown field "spec.nodename"' in complaint


async def test_an_invalid_pod_is_refused(kubectl: Kubectl) -> None:
    complaint = await kubectl.fails("create", "-f", "-", stdin=pod("a", spec={"containers": []}))
    assert complaint == 'The Pod "a" is invalid: spec.containers: Required value\n'


async def test_a_kind_that_nobody_serves_is_named(kubectl: Kubectl) -> None:
    complaint = await kubectl.fails(
        "apply", "-f", "-", stdin={"apiVersion": "kubectl.dlop.dev/v1", "kind": "Gizmo", "metadata": {"name": "a"}}
    )
    assert 'no matches for kind "Gizmo" in version "kubectl.dlop.dev/v1"\nensure CRDs are installed first' in complaint


async def test_a_bad_name_is_refused(kubectl: Kubectl) -> None:
    complaint = await kubectl.fails("create", "configmap", "Not_A_Name")
    assert complaint.startswith(
        'error: failed to create configmap: ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name"'
    )
