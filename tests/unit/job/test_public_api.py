"""Everything that dlop shows to the world is documented, and the README tells of it."""

from __future__ import annotations

import enum
import inspect
from pathlib import Path

import readme_tables

import dlop
from dlop.api.fields import ManifestField
from dlop.api.parsing import read_run_policy
from dlop.api.spec import CleanPodPolicy, RestartScope
from dlop.api.spec_models import RunPolicyModel
from dlop.job import DLJob
from dlop.operator.settings import Settings

README = (Path(__file__).parents[3] / "README.md").read_text()


def test_every_public_name_and_each_of_its_methods_has_a_docstring() -> None:
    for name in dlop.__all__:
        found = getattr(dlop, name)
        assert found.__doc__, name
        for method, value in vars(found).items():
            if inspect.isroutine(value) and not method.startswith("_") and not issubclass(found, enum.Enum):
                assert inspect.getdoc(value), f"{name}.{method}"


def test_everything_that_a_framework_may_say_or_find_has_a_meaning() -> None:
    meanings = {name: meaning for _, name, meaning in readme_tables.members()}
    assert {name for name in vars(DLJob) if not name.startswith("_")} <= meanings.keys()
    assert all(meanings.values())


def test_the_readme_tells_what_a_framework_may_say_and_finds() -> None:
    told = [name for heading, name, _ in readme_tables.members() if heading.startswith("What a framework")]
    assert {"job_type", "get_environment_variables", "judge", "write_status", "addresses"} <= set(told)
    assert all(f"| `{name}` |" in README for name in told)


def test_the_readme_tells_every_setting() -> None:
    for name in Settings.model_fields:
        assert f"| `--{name.replace('_', '-')}` | `DLOP_{name.upper()}` |" in README


def test_the_readme_and_the_definition_tell_every_field_of_the_run_policy_that_is_read() -> None:
    class Noting(dict[str, object]):
        """Notes which fields are asked for."""

        def get(self, name: str, default: object = None) -> object:
            asked.add(name)
            return default

    asked: set[str] = set()
    read_run_policy(ManifestField("runPolicy", Noting()), restart_scope=RestartScope.REPLICA, clean_pod_policy=CleanPodPolicy.NONE)
    assert asked == {field.alias for field in RunPolicyModel.model_fields.values()}
    assert all(f"| `{name}` |" in README for name in asked)
