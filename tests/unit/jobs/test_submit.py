"""Validation of manifest files: every file is either valid or has errors with line numbers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlop.frameworks.registry import Registry
from dlop.jobs.manifest_files import ManifestError, parse_documents
from dlop.jobs.submit import field_errors, format_status_error, validate_document
from dlop.kube.errors import error_from_status
from tests.sim.crew_job import KINDS, crew, mpba_mxjob, mxjob

REGISTRY = Registry(KINDS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "spec", "replicas", "template", "metadata", "generateName"]) | SCALARS, inner, max_size=3
        )
    ),
    max_leaves=10,
)
VALUES = ANYTHING | st.sampled_from(["v1", "crew.dlop.dev/v1", "mpba.fbk.eu/v1", "CrewJob", "MXJob", "Pod"])


def validation_errors(text: str) -> list[str]:
    try:
        parsed = list(parse_documents(text, name="job.yaml"))
    except ManifestError as error:
        return [str(error)]
    return [line for document in parsed for line in validate_document(document, REGISTRY, only_namespace="default")]


@given(body=st.fixed_dictionaries({}, optional=dict.fromkeys(("apiVersion", "kind", "metadata", "spec"), VALUES)) | ANYTHING)
def test_any_file_is_validated_without_a_traceback(body: Any) -> None:
    assert all(line.startswith("job.yaml:") for line in validation_errors(yaml.safe_dump(body)))


@given(
    value=ANYTHING, path=st.sampled_from(["metadata", "metadata.name", "metadata.labels", "spec", "spec.replicaSpecs", "spec.runPolicy"])
)
def test_a_job_with_any_value_in_a_field_is_validated_without_a_traceback(value: Any, path: str) -> None:
    body: Any = crew("job")
    *parents, last = path.split(".")
    target = body
    for step in parents:
        target = target[step]
    target[last] = value
    assert all(line.startswith("job.yaml:") for line in validation_errors(yaml.safe_dump(body)))


@pytest.mark.parametrize("manifest", [crew("job"), mxjob("job"), mpba_mxjob("job")])
def test_a_valid_job_has_no_errors_even_with_a_generated_name(manifest: dict[str, Any]) -> None:
    assert validation_errors(yaml.safe_dump(manifest)) == []
    generated = {**manifest, "metadata": {"generateName": "job-"}}
    assert validation_errors(yaml.safe_dump(generated)) == []
    unnamed = {**manifest, "metadata": {}}
    assert [line.partition(": ")[2] for line in validation_errors(yaml.safe_dump(unnamed))] == ["metadata.name: is required."]


def test_errors_of_the_server_are_reported_once_with_their_line() -> None:
    (document,) = parse_documents("metadata:\n  name: x\nspec:\n  a: 1\n  b: 2\n", name="job.yaml")
    unknown = error_from_status(
        {"code": 400, "reason": "BadRequest", "message": 'strict decoding error: unknown field "spec.b", unknown field "spec.b"'}
    )
    assert list(format_status_error(document, unknown)) == ["job.yaml:5: spec.b: unknown field; check the spelling and the nesting"]
    causes = [{"field": "spec.a", "message": "must be more"}, {"field": "<nil>", "message": "whatever"}]
    invalid = error_from_status({"code": 422, "reason": "Invalid", "message": "it is wrong", "details": {"causes": causes}})
    assert list(format_status_error(document, invalid)) == ["job.yaml:4: spec.a: must be more"]
    assert field_errors(error_from_status({"code": 400, "message": "no"})) == []
    assert list(format_status_error(document, error_from_status({"code": 400, "message": "no"}))) == ["job.yaml:1: no"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [*x]", "job.yaml:1: recursive alias."),
        ("a: 1\n? [1]\n: 2", "job.yaml:2: invalid YAML: "),
        ("a: 1\nb:\n  null: 3", "job.yaml:3: a key must be a string, got None."),
        ("a: 1\nb: .inf", "job.yaml:2: .inf is not a JSON number."),
        ("a: !!set {x}", "job.yaml:1: !!set has no JSON equivalent."),
        ("a: !boat x", "job.yaml:1: invalid YAML: could not determine a constructor for the tag '!boat'."),
        ("[" * 5000 + "]" * 5000, "job.yaml: nested too deeply."),
    ],
)
def test_yaml_without_a_json_equivalent_is_rejected_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as raised:
        list(parse_documents(text, name="job.yaml"))
    assert str(raised.value).startswith(message)


def test_excessive_alias_expansion_is_rejected() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
    with pytest.raises(ManifestError, match="more than 1000000 values after the expansion of aliases"):
        list(parse_documents("\n".join(lines), name="job.yaml"))


def test_keys_become_strings_and_dates_stay_strings_as_in_kubectl() -> None:
    (document,) = parse_documents("{7: a, true: b, 1.5: c, d: 2026-01-01, <<: {e: 1}}", name="job.yaml")
    assert document.content == {"7": "a", "true": "b", "1.5": "c", "d": "2026-01-01", "e": 1}
