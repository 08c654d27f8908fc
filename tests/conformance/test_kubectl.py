"""An unmodified kubectl prints and does the same on both servers."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml

from dlop.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICES, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map, crd, crd_version, object_schema, owner_reference, pod, service
from tests.conformance.crds import GADGETS, gadget
from tests.conformance.kubectl import Kubectl
from tests.conformance.support import TIMEOUT_SECONDS, only_on
from tests.kubernetes_versions import is_at_least

pytestmark = only_on("embedded", "real", reason="kubectl needs a socket")


# --- create and apply ------------------------------------------------------------------------------------------------


async def test_create_creates_all_objects_of_a_file(kubectl: Kubectl) -> None:
    manifest = yaml.safe_dump_all([config_map("a", {"k": "v"}), gadget("b")])
    result = await kubectl("create", "-f", "-", stdin=manifest)
    assert result.out == "configmap/a created\ngadget.kubectl.dlop.dev/b created\n"
    assert (await kubectl.api.get(CONFIG_MAPS, "a"))["data"] == {"k": "v"}


async def test_creating_twice_fails_with_already_exists(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=gadget("a"))
    assert await kubectl.expect_failure("create", "-f", "-", stdin=gadget("a")) == (
        'Error from server (AlreadyExists): error when creating "STDIN": gadgets.kubectl.dlop.dev "a" already exists\n'
    )


async def test_apply_reports_created_unchanged_and_configured(kubectl: Kubectl) -> None:
    resource_name = "gadget.kubectl.dlop.dev/a"
    assert (await kubectl("apply", "-f", "-", stdin=gadget("a", color="red"))).out == f"{resource_name} created\n"
    assert (await kubectl("apply", "-f", "-", stdin=gadget("a", color="red"))).out == f"{resource_name} unchanged\n"
    assert (await kubectl("apply", "-f", "-", stdin=gadget("a", replicas=2))).out == f"{resource_name} configured\n"
    assert (await kubectl.api.get(GADGETS, "a"))["spec"] == {"replicas": 2}


async def test_apply_removes_a_service_port_by_its_merge_key(kubectl: Kubectl) -> None:
    def service_with_ports(*numbers: int) -> JsonObject:
        body = service("a")
        body["spec"]["ports"] = [{"name": f"p{number}", "port": number} for number in numbers]
        return body

    assert (await kubectl("apply", "-f", "-", stdin=service_with_ports(80, 81))).out == "service/a created\n"
    assert (await kubectl("apply", "-f", "-", stdin=service_with_ports(80, 81))).out == "service/a unchanged\n"
    assert (await kubectl("apply", "-f", "-", stdin=service_with_ports(81, 82))).out == "service/a configured\n"
    result = await kubectl("get", "service", "a", "-o", "jsonpath={.spec.ports[*].port}")
    assert sorted(result.out.split()) == ["81", "82"]


async def test_apply_of_a_crd_can_be_repeated_and_changed(kubectl: Kubectl) -> None:
    resource = Resource("kubectl.dlop.dev", "v1", f"parts{kubectl.api.namespace.removeprefix('case-')}", f"Part{kubectl.api.namespace[5:]}")
    body = crd(resource, crd_version("v1", object_schema(spec={"type": "object"})))
    crd_name = f"customresourcedefinition.apiextensions.k8s.io/{resource.qualified_name}"
    assert (await kubectl("apply", "-f", "-", stdin=body)).out == f"{crd_name} created\n"
    assert (await kubectl("wait", "--for=condition=Established", "crd", resource.qualified_name)).out == f"{crd_name} condition met\n"
    assert (await kubectl("apply", "-f", "-", stdin=body)).out == f"{crd_name} unchanged\n"
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = {"n": {"type": "integer"}}
    assert (await kubectl("apply", "-f", "-", stdin=body)).out == f"{crd_name} configured\n"
    await kubectl("delete", "crd", resource.qualified_name)
    assert resource.qualified_name not in (await kubectl("get", "crds", "-o", "name")).out


async def test_server_side_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    result = await kubectl("create", "--dry-run=server", "-f", "-", stdin=gadget("a"))
    assert result.out == "gadget.kubectl.dlop.dev/a created (server dry run)\n"
    assert await kubectl.api.get_or_none(GADGETS, "a") is None


async def test_a_config_map_is_created_from_literals(kubectl: Kubectl) -> None:
    assert (await kubectl("create", "configmap", "a", "--from-literal=x=1")).out == "configmap/a created\n"
    assert (await kubectl.api.get(CONFIG_MAPS, "a"))["data"] == {"x": "1"}


async def test_objects_that_kubectl_sends_as_protobuf_are_complete(kubectl: Kubectl) -> None:
    # The commands that create an object from flags do not send JSON.
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
    binding = await kubectl.api.get(ROLE_BINDINGS, "readers")
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    assert binding["subjects"] == [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}]


async def test_a_pod_can_be_run_and_exposed(kubectl: Kubectl) -> None:
    result = await kubectl("run", "a", "--image=none", "--env=X=1", "--port=80", "--labels=app=a", "--", "sleep", "1")
    assert result.out == "pod/a created\n"
    assert (await kubectl("expose", "pod", "a", "--port=80", "--target-port=8080")).out == "service/a exposed\n"
    container = (await kubectl.api.get(PODS, "a"))["spec"]["containers"][0]
    assert (container["args"], container["env"]) == (["sleep", "1"], [{"name": "X", "value": "1"}])
    assert (await kubectl.api.get(SERVICES, "a"))["spec"]["selector"] == {"app": "a"}


async def test_the_server_has_the_version_of_kubectl(kubectl: Kubectl) -> None:
    versions = json.loads((await kubectl("version", "-o", "json")).out)
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]


async def test_a_namespace_is_created_shown_and_deleted(kubectl: Kubectl) -> None:
    name = f"{kubectl.api.namespace}-more"
    assert (await kubectl("create", "namespace", name)).out == f"namespace/{name} created\n"
    assert (await kubectl("get", "namespace", name)).table == [["NAME", "STATUS", "AGE"], [name, "Active", "AGE"]]
    assert (await kubectl("delete", "namespace", name)).out == f'namespace "{name}" deleted\n'
    assert await kubectl.api.get_or_none(NAMESPACES, name) is None


# --- get -------------------------------------------------------------------------------------------------------------


async def test_get_shows_the_printer_columns_of_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a", replicas=2, color="red"))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await kubectl.api.patch(GADGETS, "a", ready, subresource="status")
    await kubectl.api.create(GADGETS, gadget("b"))
    result = await kubectl("get", "gadgets")
    assert result.table == [["NAME", "REPLICAS", "READY", "AGE"], ["a", "2", "True", "AGE"], ["b", "1", "AGE"]]
    wide = await kubectl("get", "gd", "a", "-o", "wide")
    assert wide.table == [["NAME", "REPLICAS", "READY", "COLOR", "AGE"], ["a", "2", "True", "red", "AGE"]]


async def test_get_shows_the_usual_columns_of_pods(kubectl: Kubectl) -> None:
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


async def test_get_in_json_and_yaml_shows_the_complete_object(kubectl: Kubectl) -> None:
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
    result = await kubectl("get", "gd", "-o", "custom-columns=N:.metadata.name,R:.spec.replicas")
    assert result.table == [["N", "R"], ["a", "3"]]


async def test_get_selects_by_label_and_by_field(kubectl: Kubectl) -> None:
    for name, color in (("a", "red"), ("b", "green")):
        await kubectl.api.create(CONFIG_MAPS, config_map(name, labels={"color": color}))
    assert (await kubectl("get", "cm", "-l", "color in (red, blue)", "-o", "name")).out == "configmap/a\n"
    assert (await kubectl("get", "cm", "--field-selector", "metadata.name=b", "-o", "name")).out == "configmap/b\n"
    assert (await kubectl("get", "cm", "-L", "color", "a")).table == [["NAME", "DATA", "AGE", "COLOR"], ["a", "0", "AGE", "red"]]


async def test_get_reports_missing_objects(kubectl: Kubectl) -> None:
    result = await kubectl("get", "gadgets")
    assert (result.out, result.err) == ("", f"No resources found in {kubectl.api.namespace} namespace.\n")
    assert await kubectl.expect_failure("get", "gadget", "a") == 'Error from server (NotFound): gadgets.kubectl.dlop.dev "a" not found\n'
    assert await kubectl.expect_failure("get", "pod", "a") == 'Error from server (NotFound): pods "a" not found\n'


async def test_get_reports_an_unknown_resource(kubectl: Kubectl) -> None:
    assert await kubectl.expect_failure("get", "gizmos") == 'error: the server doesn\'t have a resource type "gizmos"\n'


async def test_get_with_watch_prints_each_change(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    async with kubectl.start("get", "gadgets", "-w") as process, asyncio.timeout(TIMEOUT_SECONDS):
        assert process.stdout is not None
        header, first = [await process.stdout.readline() for _ in range(2)]
        await kubectl.api.patch(GADGETS, "a", {"spec": {"replicas": 7}})
        second = await process.stdout.readline()
    assert header.split() == [b"NAME", b"REPLICAS", b"READY", b"AGE"]
    assert first.split()[:2] == [b"a", b"1"]
    assert second.split()[:2] == [b"a", b"7"]


async def test_events_are_shown_by_get_describe_and_events(kubectl: Kubectl) -> None:
    involved_pod = await kubectl.api.create(PODS, pod("a"))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "a",
            "namespace": kubectl.api.namespace,
            "uid": involved_pod["metadata"]["uid"],
        },
        "reason": "Probed",
        "message": "Probe succeeded",
        "type": "Normal",
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "count": 1,
    }
    await kubectl("create", "-f", "-", stdin=event)
    table = (await kubectl("get", "events")).table
    assert table[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert table[1][1:] == ["Normal", "Probed", "pod/a", "Probe", "succeeded"]
    assert "Probed" in (await kubectl("describe", "pod", "a")).out
    assert "Probed" in (await kubectl("events", "--for", "pod/a")).out


# --- describe and explain --------------------------------------------------------------------------------------------


async def test_describe_shows_a_pod(kubectl: Kubectl) -> None:
    await kubectl.api.create(PODS, pod("a", labels={"app": "x"}))
    description = (await kubectl("describe", "pod", "a")).description
    expected = {"Name": "a", "Priority": "0", "Node": "<none>", "Labels": "app=x", "Status": "Pending", "Image": "none"}
    expected |= {"QoS Class": "BestEffort", "Events": "<none>", "Namespace": kubectl.api.namespace}
    assert {name: description[name] for name in expected} == expected


async def test_describe_shows_a_service_and_a_config_map(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=service("a"))
    description = (await kubectl("describe", "service", "a")).description
    expected = {"Type": "ClusterIP", "IP": "None", "Selector": "app=a", "Port": "main  80/TCP", "Session Affinity": "None"}
    assert {name: description[name] for name in expected} == expected
    await kubectl.api.create(CONFIG_MAPS, config_map("b", {"key": "value"}))
    assert "key:\n----\nvalue\n" in (await kubectl("describe", "cm", "b")).out


async def test_describe_shows_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a", replicas=2))
    description = (await kubectl("describe", "gadget", "a")).description
    expected = {"Name": "a", "API Version": "kubectl.dlop.dev/v1", "Kind": "Gadget", "Generation": "1", "Replicas": "2"}
    assert {name: description[name] for name in expected} == expected


async def test_explain_shows_the_schema_of_a_custom_resource(kubectl: Kubectl) -> None:
    explanation = (await kubectl("explain", "gadgets")).out
    assert explanation.startswith(
        "GROUP:      kubectl.dlop.dev\nKIND:       Gadget\nVERSION:    v1\n\nDESCRIPTION:\n    A gadget is a resource"
    )
    assert "  spec\t<Object> -required-\n    Desired state of a gadget.\n" in explanation
    assert "  metadata\t<ObjectMeta>\n" in explanation
    assert (await kubectl("explain", "gd.spec.replicas")).out == (
        "GROUP:      kubectl.dlop.dev\nKIND:       Gadget\nVERSION:    v1\n\nFIELD: replicas <integer>\n\n\n"
        "DESCRIPTION:\n    How many.\n    \n\n"
    )
    assert await kubectl.expect_failure("explain", "gd.spec.none") == 'error: field "none" does not exist\n'


async def test_explain_shows_the_fields_of_a_built_in_resource(kubectl: Kubectl) -> None:
    explanation = (await kubectl("explain", "pod.spec.nodeName")).out
    assert explanation.startswith("KIND:       Pod\nVERSION:    v1\n\nFIELD: nodeName <string>\n")


async def test_api_resources_lists_built_in_and_custom_resources(kubectl: Kubectl) -> None:
    result = await kubectl("api-resources", "--api-group=kubectl.dlop.dev", "--no-headers")
    assert ["gadgets", "gd", "kubectl.dlop.dev/v1", "true", "Gadget"] in result.table
    core = (await kubectl("api-resources", "--api-group=", "--no-headers")).table
    for line in (["pods", "po", "v1", "true", "Pod"], ["namespaces", "ns", "v1", "false", "Namespace"]):
        assert line in core
    assert "kubectl.dlop.dev/v1" in (await kubectl("api-versions")).out.splitlines()


# --- changes ---------------------------------------------------------------------------------------------------------


async def test_patch_supports_merge_json_and_strategic_patches(kubectl: Kubectl) -> None:
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


async def test_patch_of_the_status_does_not_change_the_spec(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    patch = '{"spec":{"replicas":9},"status":{"replicas":4}}'
    await kubectl("patch", "gd", "a", "--subresource=status", "--type=merge", "-p", patch)
    patched = await kubectl.api.get(GADGETS, "a")
    assert (patched["spec"], patched["status"]) == ({"replicas": 1}, {"replicas": 4})


async def test_scale_changes_the_replicas_of_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    assert (await kubectl("scale", "gadget/a", "--replicas=4")).out == "gadget.kubectl.dlop.dev/a scaled\n"
    assert (await kubectl.api.get(GADGETS, "a"))["spec"]["replicas"] == 4
    assert "Expected replicas to be 9, was 4" in await kubectl.expect_failure("scale", "gadget/a", "--current-replicas=9", "--replicas=1")


async def test_label_and_annotate_change_metadata(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    assert (await kubectl("label", "gd", "a", "x=1", "y=2")).out == "gadget.kubectl.dlop.dev/a labeled\n"
    assert (await kubectl("label", "gd", "a", "y-")).out == "gadget.kubectl.dlop.dev/a unlabeled\n"
    assert (await kubectl("annotate", "gd", "a", "note=short")).out == "gadget.kubectl.dlop.dev/a annotated\n"
    metadata = (await kubectl.api.get(GADGETS, "a"))["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"x": "1"}, {"note": "short"})
    assert "already has a value (1), and --overwrite is false" in await kubectl.expect_failure("label", "gd", "a", "x=3")


async def test_replace_requires_an_existing_object(kubectl: Kubectl) -> None:
    await kubectl.api.create(CONFIG_MAPS, config_map("a", {"x": "1"}))
    assert (await kubectl("replace", "-f", "-", stdin=config_map("a", {"y": "2"}))).out == "configmap/a replaced\n"
    assert (await kubectl.api.get(CONFIG_MAPS, "a"))["data"] == {"y": "2"}
    assert await kubectl.expect_failure("replace", "-f", "-", stdin=config_map("b")) == (
        'Error from server (NotFound): error when replacing "STDIN": configmaps "b" not found\n'
    )


async def test_replace_reports_a_conflict(kubectl: Kubectl) -> None:
    first = await kubectl.api.create(GADGETS, gadget("a"))
    await kubectl.api.patch(GADGETS, "a", {"spec": {"replicas": 2}})
    stderr = await kubectl.expect_failure("replace", "-f", "-", stdin=first)
    assert stderr == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on gadgets.kubectl.dlop.dev "a": '
        "the object has been modified; please apply your changes to the latest version and try again\n"
    )


# --- wait and delete -------------------------------------------------------------------------------------------------


async def test_wait_returns_when_a_condition_or_a_field_has_the_value(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    condition_met = "gadget.kubectl.dlop.dev/a condition met\n"
    task = asyncio.create_task(kubectl("wait", "--for=condition=Ready", "gadget/a", "--timeout=30s"))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await kubectl.api.patch(GADGETS, "a", ready, subresource="status")
    assert (await task).out == condition_met
    assert (await kubectl("wait", "--for=jsonpath={.spec.replicas}=1", "gadget/a")).out == condition_met


async def test_wait_fails_after_its_timeout(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    stderr = await kubectl.expect_failure("wait", "--for=condition=Ready", "gadget/a", "--timeout=100ms")
    assert stderr == "error: timed out waiting for the condition on gadgets/a\n"


async def test_wait_for_deletion_returns_when_the_object_is_deleted(kubectl: Kubectl) -> None:
    await kubectl.api.create(GADGETS, gadget("a"))
    task = asyncio.create_task(kubectl("wait", "--for=delete", "gadget/a", "--timeout=30s"))
    await kubectl.api.delete(GADGETS, "a")
    assert (await task).err == ""
    assert await kubectl.api.get_or_none(GADGETS, "a") is None


def from_namespace(kubectl: Kubectl) -> str:
    """The end of a message about a deleted object."""
    return f" from {kubectl.api.namespace} namespace" if is_at_least("1.34") else ""


async def test_delete_by_name_and_by_label(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        await kubectl.api.create(CONFIG_MAPS, config_map(name, labels={"keep": "no" if name != "c" else "yes"}))
    assert (await kubectl("delete", "cm", "a")).out == f'configmap "a" deleted{from_namespace(kubectl)}\n'
    assert (await kubectl("delete", "cm", "-l", "keep=no")).out == f'configmap "b" deleted{from_namespace(kubectl)}\n'
    assert await kubectl.expect_failure("delete", "cm", "a") == 'Error from server (NotFound): configmaps "a" not found\n'
    assert (await kubectl("delete", "cm", "a", "--ignore-not-found")).out == ""
    assert await kubectl.api.get_or_none(CONFIG_MAPS, "c") is not None


async def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    body = gadget("a")
    body["metadata"]["finalizers"] = ["dlop.dev/hold"]
    await kubectl.api.create(GADGETS, body)
    task = asyncio.create_task(kubectl("delete", "gadget", "a"))
    await kubectl.api.wait_for_termination(GADGETS, "a")
    await kubectl.api.patch(GADGETS, "a", {"metadata": {"finalizers": None}})
    assert (await task).out == f'gadget.kubectl.dlop.dev "a" deleted{from_namespace(kubectl)}\n'


async def test_forced_deletion_of_a_scheduled_pod_does_not_wait_for_the_kubelet(kubectl: Kubectl) -> None:
    await kubectl.api.create(PODS, pod("a", node="one"))
    result = await kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    assert result.out == f'pod "a" force deleted{from_namespace(kubectl)}\n'
    assert result.err.startswith("Warning: Immediate deletion does not wait for confirmation")
    assert await kubectl.api.get_or_none(PODS, "a") is None


@pytest.mark.parametrize(("cascade", "is_orphaned"), [("background", False), ("foreground", False), ("orphan", True)])
async def test_cascade_selects_the_deletion_of_owned_objects(kubectl: Kubectl, cascade: str, *, is_orphaned: bool) -> None:
    api = kubectl.api
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(CONFIG_MAPS, config_map("child", ownerReferences=[owner_reference(parent, block=True)]))
    await kubectl("delete", "cm", "parent", f"--cascade={cascade}")
    if is_orphaned:
        await api.wait_for(CONFIG_MAPS, "child", lambda obj: "ownerReferences" not in obj["metadata"])
    else:
        await api.wait_for_deletion(CONFIG_MAPS, "child")


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_an_invalid_custom_object_is_rejected_with_each_field(kubectl: Kubectl) -> None:
    stderr = await kubectl.expect_failure("create", "-f", "-", stdin=gadget("a", replicas=-1, color="blue"))
    lines = stderr.splitlines()
    assert lines[0] == 'The Gadget "a" is invalid: '
    assert '* spec.color: Unsupported value: "blue": supported values: "red", "green"' in lines
    assert "* spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0" in lines


async def test_validate_rejects_warns_about_or_ignores_an_unknown_field(kubectl: Kubectl) -> None:
    body = gadget("a", colour="red")
    strict = await kubectl.expect_failure("create", "-f", "-", stdin=body)
    assert strict == (
        'Error from server (BadRequest): error when creating "STDIN": Gadget in version "v1" cannot be handled as a Gadget: '
        'strict decoding error: unknown field "spec.colour"\n'
    )
    warn = await kubectl("create", "--validate=warn", "-f", "-", stdin=body)
    assert (warn.out, warn.err) == ("gadget.kubectl.dlop.dev/a created\n", 'Warning: unknown field "spec.colour"\n')
    ignore = await kubectl("create", "--validate=ignore", "-f", "-", stdin=gadget("b", colour="red"))
    assert ignore.err == ""
    assert (await kubectl.api.get(GADGETS, "b"))["spec"] == {"replicas": 1}


async def test_an_unknown_field_of_a_pod_is_rejected(kubectl: Kubectl) -> None:
    stderr = await kubectl.expect_failure("apply", "--validate=strict", "-f", "-", stdin=pod("a", spec={"nodename": "x"}))
    assert 'strict decoding error: unknown field "spec.nodename"' in stderr


async def test_an_invalid_pod_is_rejected(kubectl: Kubectl) -> None:
    stderr = await kubectl.expect_failure("create", "-f", "-", stdin=pod("a", spec={"containers": []}))
    assert stderr == 'The Pod "a" is invalid: spec.containers: Required value\n'


async def test_a_kind_that_is_not_served_is_reported(kubectl: Kubectl) -> None:
    stderr = await kubectl.expect_failure(
        "apply", "-f", "-", stdin={"apiVersion": "kubectl.dlop.dev/v1", "kind": "Gizmo", "metadata": {"name": "a"}}
    )
    assert 'no matches for kind "Gizmo" in version "kubectl.dlop.dev/v1"\nensure CRDs are installed first' in stderr


async def test_an_invalid_name_is_rejected(kubectl: Kubectl) -> None:
    stderr = await kubectl.expect_failure("create", "configmap", "Not_A_Name")
    assert stderr.startswith(
        'error: failed to create configmap: ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name"'
    )
