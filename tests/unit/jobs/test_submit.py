"""Manifests: whatever a file says is either a job or told as a mistake, with its line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlop.frameworks.registry import Registry
from dlop.jobs.manifest_files import ManifestError, documents
from dlop.jobs.submit import complaints, mistakes_in, refusals
from dlop.kube.errors import error_from_status
from tests.sim.job_world import KINDS, crew, listed, mxjob

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
WORDS = ANYTHING | st.sampled_from(["v1", "crew.dlop.dev/v1", "mpba.fbk.eu/v1", "CrewJob", "MXJob", "Pod"])


def mistakes(text: str) -> list[str]:
    try:
        found = list(documents(text, name="job.yaml"))
    except ManifestError as error:
        return [str(error)]
    return [line for document in found for line in mistakes_in(document, REGISTRY, only_namespace="default")]


@given(body=st.fixed_dictionaries({}, optional=dict.fromkeys(("apiVersion", "kind", "metadata", "spec"), WORDS)) | ANYTHING)
def test_whatever_a_file_says_is_told_and_never_a_traceback(body: Any) -> None:
    assert all(line.startswith("job.yaml:") for line in mistakes(yaml.safe_dump(body)))


@given(
    value=ANYTHING, path=st.sampled_from(["metadata", "metadata.name", "metadata.labels", "spec", "spec.replicaSpecs", "spec.runPolicy"])
)
def test_a_job_with_one_strange_field_is_judged_and_never_a_traceback(value: Any, path: str) -> None:
    body: Any = crew("job")
    *way, last = path.split(".")
    target = body
    for step in way:
        target = target[step]
    target[last] = value
    assert all(line.startswith("job.yaml:") for line in mistakes(yaml.safe_dump(body)))


@pytest.mark.parametrize("manifest", [crew("job"), mxjob("job"), listed("job")])
def test_a_job_as_it_should_be_has_no_mistakes_also_without_a_name_of_its_own(manifest: dict[str, Any]) -> None:
    assert mistakes(yaml.safe_dump(manifest)) == []
    unnamed = {**manifest, "metadata": {"generateName": "job-"}}
    assert mistakes(yaml.safe_dump(unnamed)) == []
    nameless = {**manifest, "metadata": {}}
    assert [line.partition(": ")[2] for line in mistakes(yaml.safe_dump(nameless))] == ["metadata.name: is missing."]


def test_what_the_server_complains_of_is_told_by_line_and_once() -> None:
    (document,) = documents("metadata:\n  name: x\nspec:\n  a: 1\n  b: 2\n", name="job.yaml")
    unknown = error_from_status(
        {"code": 400, "reason": "BadRequest", "message": 'strict decoding error: unknown field "spec.b", unknown field "spec.b"'}
    )
    assert list(refusals(document, unknown)) == ["job.yaml:5: spec.b: the kind has no such field; is it misspelt, or in the wrong place?"]
    causes = [{"field": "spec.a", "message": "must be more"}, {"field": "<nil>", "message": "whatever"}]
    invalid = error_from_status({"code": 422, "reason": "Invalid", "message": "it is wrong", "details": {"causes": causes}})
    assert list(refusals(document, invalid)) == ["job.yaml:4: spec.a: must be more"]
    assert complaints(error_from_status({"code": 400, "message": "no"})) == []
    assert list(refusals(document, error_from_status({"code": 400, "message": "no"}))) == ["job.yaml:1: no"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: &x [*x]", "job.yaml:1: it contains itself."),
        ("a: 1\n? [1]\n: 2", "job.yaml:2: this is no YAML: "),
        ("a: 1\nb:\n  null: 3", "job.yaml:3: a key must be a text, not None."),
        ("a: 1\nb: .inf", "job.yaml:2: .inf is no number that JSON can say."),
        ("a: !!set {x}", "job.yaml:1: !!set is nothing that JSON can say."),
        ("a: !boat x", "job.yaml:1: this is no YAML: could not determine a constructor for the tag '!boat'."),
        ("[" * 5000 + "]" * 5000, "job.yaml: this is nested too deeply."),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ManifestError) as raised:
        list(documents(text, name="job.yaml"))
    assert str(raised.value).startswith(sentence)


def test_a_file_that_grows_beyond_measure_through_its_aliases_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
    with pytest.raises(ManifestError, match="it has more than 1000000 values, when its aliases are written out"):
        list(documents("\n".join(lines), name="job.yaml"))


def test_keys_are_texts_and_dates_stay_as_they_are_as_kubectl_has_it() -> None:
    (document,) = documents("{7: a, true: b, 1.5: c, d: 2026-01-01, <<: {e: 1}}", name="job.yaml")
    assert document.content == {"7": "a", "true": "b", "1.5": "c", "d": "2026-01-01", "e": 1}
