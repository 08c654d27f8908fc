"""The public API is documented, in docstrings and on the documentation pages."""

from __future__ import annotations

import enum
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import page_tables
import pytest

import dlop
from dlop import policies
from dlop.api.fields import ManifestField
from dlop.api.parsing import read_run_policy
from dlop.api.spec import CleanPodPolicy, RestartScope
from dlop.api.spec_models import RunPolicyModel
from dlop.frameworks.registry import load_registry
from dlop.job import DLJob
from dlop.operator.settings import with_framework_flags

ROOT = Path(__file__).parents[3]
FRAMEWORKS_PAGE = (ROOT / "dlop" / "frameworks" / "README.md").read_text()
MANIFESTS_PAGE = (ROOT / "manifests" / "README.md").read_text()
RECONCILE_PAGE = (ROOT / "dlop" / "reconcile" / "README.md").read_text()


PUBLIC_NAMES = {
    "the job": {"DLJob", "Replica", "MemberReplica", "Options", "DeclarationError"},
    "what it declares": {"ConfigMapKey", "ContainerProperties", "FieldRef", "JobType", "ReplicaType", "StartAfter", "StartCondition"},
    "flags": {"FlagFile", "FrameworkFlags"},
    "specs": {
        "CleanPodPolicy",
        "ElasticRange",
        "JobSpec",
        "ManifestField",
        "Problem",
        "RestartPolicy",
        "RestartScope",
        "RoleSpec",
        "RunPolicy",
        "SpecError",
    },
    "schemas": {
        *("AGE", "Column", "LAST_FAILURE", "ListSchema", "RoleFieldsSchema", "STATE_BY_CONDITIONS", "Schema"),
        *("rule", "with_default", "with_rules"),
    },
    "models": {
        *(
            "ApiModel",
            "CleanPodPolicyValue",
            "ContainerModel",
            "Count",
            "CronPolicyModel",
            "OpenModel",
            "PodSpecModel",
            "PodTemplate",
            "Port",
        ),
        *("ReplicaModel", "Replicas", "RestartedPodTemplate", "RunPolicyModel", "SchedulingPolicyModel"),
    },
    "progress": {"Progress", "ReplicaProgress", "ReplicaState", "RoleProgress", "LastFailure"},
    "status": {"Blocked", "JobResult", "Outcome", "Phase", "Reason", "ScaleRecord"},
    "children": {
        *("Create", "PermissionSet", "Resource"),
        *("CONFIG_MAPS", "HORIZONTAL_POD_AUTOSCALERS", "ROLES", "ROLE_BINDINGS", "SERVICE_ACCOUNTS"),
    },
    "helpers": {"CustomObject", "JsonObject", "cached_property"},
}
"""The public API, by subject. A change of it affects the authors of frameworks."""
PUBLIC_POLICIES = {
    *("ChildObjects", "LeaderRole", "Lifecycle", "Members", "Naming", "Status"),
    *("Member", "MemberRequest", "Migration", "RoleTarget", "ScaleRequest"),
    *("ATTEMPT_LABEL", "GPU", "JOB_NAME_LABEL", "REPLICA_TYPE_LABEL"),
    *("INGRESSES", "INGRESS_PERMISSIONS", "ingress_body"),
    *("current_resource_name", "requested_resources", "with_current_resource_names"),
    *("dns_label", "format_selector", "label_value", "object_name", "parse_quantities", "pod_requests", "ps_lite_variables", "short_hash"),
}


def test_the_public_api_is_what_framework_authors_need() -> None:
    assert set(dlop.__all__) == set[str]().union(*PUBLIC_NAMES.values())
    assert set(policies.__all__) == PUBLIC_POLICIES


def test_every_public_class_and_each_of_its_methods_has_a_docstring() -> None:
    for module in (dlop, policies):
        for name in module.__all__:
            member = getattr(module, name)
            if not inspect.isclass(member) or not member.__module__.startswith("dlop"):
                continue
            assert member.__doc__, name
            for method, value in vars(member).items():
                is_own = inspect.isroutine(value) and not method.startswith("_") and not issubclass(member, enum.Enum)
                assert not is_own or inspect.getdoc(value), f"{name}.{method}"


@pytest.mark.machine
def test_importing_dlop_does_not_import_pydantic() -> None:
    program = "import sys, dlop; assert 'pydantic' not in sys.modules, 'imported'; assert dlop.ApiModel and 'pydantic' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_member_of_dljob_and_of_the_policies_has_a_description() -> None:
    kinds: list[type[Any]] = [DLJob, *page_tables.POLICY_CLASSES.values()]
    for kind in kinds:
        descriptions = {name: description for _, name, description in page_tables.members(kind)}
        assert {name for name in vars(kind) if not name.startswith("_")} <= descriptions.keys()
        assert all(descriptions.values()), kind


def test_the_frameworks_page_lists_everything_that_a_framework_declares_and_uses() -> None:
    sections = (page_tables.REQUIRED, page_tables.POLICIES, page_tables.HELPERS)
    names = [name for section, name, _ in page_tables.members(DLJob) if section in sections]
    names += [name for kind in page_tables.POLICY_CLASSES.values() for section, name, _ in page_tables.members(kind) if not section]
    assert {"job_type", "get_environment_variables", "lifecycle", "evaluate", "write", "addresses"} <= set(names)
    assert all(f"| `{name}` |" in FRAMEWORKS_PAGE for name in names)


def test_the_manifests_page_lists_every_setting() -> None:
    for name in with_framework_flags(load_registry().flags).model_fields:
        assert f"| `--{name.replace('_', '-')}` | `DLOP_{name.upper()}` |" in MANIFESTS_PAGE


def test_the_reconcile_page_and_the_crd_have_every_field_of_the_run_policy_that_is_read() -> None:
    class Recorder(dict[str, object]):
        """Records which fields are read."""

        def get(self, name: str, default: object = None) -> object:
            fields.add(name)
            return default

    fields: set[str] = set()
    read_run_policy(ManifestField("runPolicy", Recorder()), restart_scope=RestartScope.REPLICA, clean_pod_policy=CleanPodPolicy.NONE)
    assert fields == {field.alias for field in RunPolicyModel.model_fields.values()}
    assert all(f"| `{name}` |" in RECONCILE_PAGE for name in fields)
