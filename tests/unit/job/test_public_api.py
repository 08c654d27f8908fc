"""The public API is documented, in docstrings and on the documentation pages."""

from __future__ import annotations

import enum
import inspect
from pathlib import Path

import page_tables

import dlop
from dlop.api.fields import ManifestField
from dlop.api.parsing import read_run_policy
from dlop.api.spec import CleanPodPolicy, RestartScope
from dlop.api.spec_models import RunPolicyModel
from dlop.job import DLJob
from dlop.operator.settings import Settings

ROOT = Path(__file__).parents[3]
FRAMEWORKS_PAGE = (ROOT / "dlop" / "frameworks" / "README.md").read_text()
MANIFESTS_PAGE = (ROOT / "manifests" / "README.md").read_text()
RECONCILE_PAGE = (ROOT / "dlop" / "reconcile" / "README.md").read_text()


def test_every_public_name_and_each_of_its_methods_has_a_docstring() -> None:
    for name in dlop.__all__:
        member = getattr(dlop, name)
        assert member.__doc__, name
        for method, value in vars(member).items():
            if inspect.isroutine(value) and not method.startswith("_") and not issubclass(member, enum.Enum):
                assert inspect.getdoc(value), f"{name}.{method}"


def test_every_member_of_dljob_has_a_description() -> None:
    descriptions = {name: description for _, name, description in page_tables.members()}
    assert {name for name in vars(DLJob) if not name.startswith("_")} <= descriptions.keys()
    assert all(descriptions.values())


def test_the_frameworks_page_lists_all_overrides_and_helpers() -> None:
    names = [name for heading, name, _ in page_tables.members() if heading.startswith((page_tables.OVERRIDES, page_tables.HELPERS))]
    assert {"job_type", "get_environment_variables", "evaluate", "write_status", "addresses"} <= set(names)
    assert all(f"| `{name}` |" in FRAMEWORKS_PAGE for name in names)


def test_the_manifests_page_lists_every_setting() -> None:
    for name in Settings.model_fields:
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
