"""`runPolicy.codeSync`, and KubeDL's annotation: what is read, and how bad input is reported."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop import Options, SpecError
from dlop.api.code_sync import CodeSource
from dlop.api.spec import Problem
from dlop.frameworks.mpba.mxjob import MXJob
from dlop.kube.types import JsonObject
from tests.unit.job.jobs import PairJob, make, pair_spec, template

ANNOTATION = "kubedl.io/git-sync-config"
FIELD = "spec.runPolicy.codeSync[0]"
SECRET = "put `username` and `password` into a Secret, and its name into secretName"
SEEN_BY_ALL = f"because all readers of the job would see it; {SECRET}"


def synced(*sources: Any, annotation: Any = None, **spec: Any) -> PairJob:
    """A job with these repositories, and with the annotation."""
    policy = {"codeSync": list(sources)} if sources else {}
    annotations = {} if annotation is None else {ANNOTATION: annotation if isinstance(annotation, str) else encode(annotation)}
    return make(PairJob, pair_spec(run_policy=policy, **spec), annotations=annotations, options=Options(git_sync_image="git-sync:4"))


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def sources_of(job: PairJob) -> tuple[CodeSource, ...]:
    return job.spec.run_policy.code_sync


def problems(job: PairJob) -> list[str]:
    with pytest.raises(SpecError) as caught:
        _ = job.spec
    return [str(problem) for problem in caught.value.problems]


def repository(**fields: Any) -> JsonObject:
    return {"source": "https://example.org/team/train.git", **fields}


# --- what is read ---


def test_only_the_source_is_required() -> None:
    assert sources_of(synced(repository())) == (
        CodeSource(number=0, path=FIELD, source="https://example.org/team/train.git", destination="train"),
    )


def test_all_fields_of_the_run_policy_are_read() -> None:
    fields = repository(
        branch="main",
        revision="v1.2",
        depth=5,
        destPath="src/train",
        rootPath="/work",
        image="git-sync:3",
        secretName="git",
        envs=[{"name": "GIT_SYNC_SUBMODULES", "value": "off"}],
        maxFailures=7,
    )
    assert sources_of(synced(fields)) == (
        CodeSource(
            number=0,
            path=FIELD,
            source="https://example.org/team/train.git",
            destination="src/train",
            branch="main",
            revision="v1.2",
            depth=5,
            root="/work",
            image="git-sync:3",
            secret="git",
            environment=({"name": "GIT_SYNC_SUBMODULES", "value": "off"},),
            max_failures=7,
        ),
    )


def test_the_annotation_of_kubedl_is_an_object() -> None:
    annotation = repository(depth="3", ssh=True, sshFile="/keys/id", secretName="git", user="me", unknown=1)
    job = synced(annotation=annotation)
    (source,) = sources_of(job)
    assert (source.path, source.depth, source.ssh, source.ssh_key_file, source.user) == (
        f"metadata.annotations[{ANNOTATION}]",
        3,
        True,
        "/keys/id",
        "me",
    )
    assert [str(warning) for warning in job.spec_warnings] == [
        f"metadata.annotations[{ANNOTATION}].unknown: is not a field of a repository and has no effect"
    ]


def test_the_annotation_can_be_a_list() -> None:
    sources = sources_of(synced(annotation=[repository(), repository(destPath="other")]))
    assert [(source.path, source.destination) for source in sources] == [
        (f"metadata.annotations[{ANNOTATION}][0]", "train"),
        (f"metadata.annotations[{ANNOTATION}][1]", "other"),
    ]


def test_the_run_policy_takes_precedence_over_the_annotation() -> None:
    job = synced(repository(), annotation=repository(source="https://example.org/other.git"))
    assert [source.source for source in sources_of(job)] == ["https://example.org/team/train.git"]
    assert [str(warning) for warning in job.spec_warnings] == [
        f"metadata.annotations[{ANNOTATION}]: has no effect, because the run policy has codeSync"
    ]


def test_kinds_with_a_list_of_roles_read_the_annotation() -> None:
    roles = [{"replicaType": role, "replicas": 1, "template": template()} for role in ("SCHEDULER", "WORKER")]
    job = make(MXJob, roles, annotations={ANNOTATION: encode(repository())})
    assert [source.destination for source in job.spec.run_policy.code_sync] == ["train"]


@pytest.mark.parametrize(
    ("source", "directory", "ssh"),
    [
        ("https://example.org/team/train.git", "train", False),
        ("https://example.org/team/train/", "train", False),
        ("git@example.org:team/train.git", "train", True),
        ("example.org:train", "train", True),
        ("ssh://git@example.org:22/team/train.git", "train", True),
        ("file:///srv/train.bundle", "train", False),
        ("/srv/git/train.git", "train", False),
    ],
)
def test_the_directory_and_the_protocol_follow_from_the_source(source: str, directory: str, ssh: bool) -> None:
    (read,) = sources_of(synced({"source": source}))
    assert (read.destination, read.ssh) == (directory, ssh)


@pytest.mark.parametrize(("depth", "expected"), [(None, 0), (0, 0), ("", 0), ("0", 0), ("7", 7), (7, 7)])
def test_depth_is_a_number_or_a_string_as_for_kubedl(depth: Any, expected: int) -> None:
    assert sources_of(synced(annotation=repository(depth=depth)))[0].depth == expected


# --- bad input ---


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"source": None}, "source: is missing; set the address of the git repository"),
        ({"source": ""}, "source: is missing; set the address of the git repository"),
        ({"source": 5}, "source: must be a string, got 5"),
        (
            {"source": "--upload-pack=touch x"},
            "source: must be the address of a git repository, without a leading dash, surrounding spaces and control characters",
        ),
        (
            {"source": "https://example.org/a\nb"},
            "source: must be the address of a git repository, without a leading dash, surrounding spaces and control characters",
        ),
        (
            {"source": "ext::sh -c touch% x"},
            "source: must be a URL or a path; the transport 'ext' runs programs and is not allowed",
        ),
        (
            {"source": "https://me:secret@example.org/a.git"},
            f"source: must not contain credentials, because all readers of the job would see them; {SECRET}",
        ),
        (
            {"source": "https://ghp_token@example.org/a.git"},
            f"source: must not contain credentials, because all readers of the job would see them; {SECRET}",
        ),
        (
            {"source": "ssh://me:secret@example.org/a.git"},
            f"source: must not contain credentials, because all readers of the job would see them; {SECRET}",
        ),
        ({"source": "https://example.org/.."}, "destPath: is missing, and the source has no name for the directory; set destPath"),
        ({"branch": "-b"}, "branch: must be the name of a branch, tag or commit, got '-b'"),
        ({"branch": "a b"}, "branch: must be the name of a branch, tag or commit, got 'a b'"),
        ({"revision": "a:b"}, "revision: must be the name of a branch, tag or commit, got 'a:b'"),
        ({"revision": 7}, "revision: must be a string, got 7"),
        ({"depth": -1}, "depth: must be from 0 to 2147483647, got -1"),
        ({"depth": "deep"}, "depth: must be an integer, got 'deep'"),
        ({"rootPath": "code"}, "rootPath: must be an absolute path below the root directory and without '..', got 'code'"),
        ({"rootPath": "/"}, "rootPath: must be an absolute path below the root directory and without '..', got '/'"),
        ({"destPath": "/code"}, "destPath: must be a relative path without '..', got '/code'"),
        ({"destPath": "../code"}, "destPath: must be a relative path without '..', got '../code'"),
        ({"destPath": "."}, "destPath: must be a relative path without '..', got '.'"),
        ({"image": 1}, "image: must be a string, got 1"),
        ({"secretName": "Not_A_Name"}, "secretName: must be the name of a Secret in the namespace of the job, got 'Not_A_Name'"),
        ({"password": "secret"}, f"password: must not be in a manifest, {SEEN_BY_ALL}"),
        ({"user": "me"}, "user: needs secretName, the name of a Secret with `password`"),
        ({"ssh": "yes"}, "ssh: must be true or false, got 'yes'"),
        ({"envs": {}}, "envs: must be a list, got an object"),
        ({"envs": ["A=b"]}, "envs[0]: must be an object, got 'A=b'"),
        ({"envs": [{"value": "b"}]}, "envs[0]: must have a name"),
        ({"envs": [{"name": "A", "value": 1}]}, "envs[0].value: must be a string, got 1"),
        ({"envs": [{"name": "GIT_SYNC_PASSWORD", "value": "secret"}]}, f"envs[0].value: must not be in a manifest, {SEEN_BY_ALL}"),
        ({"maxFailures": -1}, "maxFailures: must be from 0 to 1000, got -1"),
    ],
)
def test_bad_input_is_reported_with_its_field_in_both_spellings(fields: JsonObject, problem: str) -> None:
    assert f"{FIELD}.{problem}" in problems(synced(repository(**fields)))
    assert f"metadata.annotations[{ANNOTATION}].{problem}" in problems(synced(annotation=repository(**fields)))
    assert not any("secret@" in text or "'secret'" in text or "ghp_token" in text for text in problems(synced(repository(**fields))))


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("{", "must be JSON: Input data was truncated"),
        ('"https://example.org/a.git"', "must be an object, got 'https://example.org/a.git'"),
        ([1], "must be an object, got 1"),
    ],
)
def test_an_annotation_of_the_wrong_type_is_reported(annotation: Any, problem: str) -> None:
    assert any(text.endswith(f": {problem}") for text in problems(synced(annotation=annotation)))


def test_a_job_has_at_most_eight_repositories() -> None:
    many = [repository(destPath=f"d{number}") for number in range(9)]
    assert problems(synced(*many)) == ["spec.runPolicy.codeSync: must have at most 8 repositories, got 9"]
    assert len(sources_of(synced(*many[:8]))) == 8


@pytest.mark.parametrize("other", ["train", "train/sub", "./train"])
def test_repositories_in_the_same_directory_are_reported(other: str) -> None:
    normal = other.removeprefix("./")
    assert problems(synced(repository(), repository(destPath=other))) == [
        f"spec.runPolicy.codeSync[1].destPath: '{normal}' overlaps with the directory 'train' of {FIELD}; set another one"
    ]


LEADER = "spec.replicaSpecs.Leader.template.spec"
MOUNT = "containers[0].volumeMounts[0].mountPath"


@pytest.mark.parametrize(
    ("pod_spec", "problem"),
    [
        ({"volumes": [{"name": "git-sync"}]}, f"volumes[0].name: 'git-sync' is reserved for {FIELD}; choose another name"),
        ({"volumes": [{"name": "git-sync-secret"}]}, f"volumes[0].name: 'git-sync-secret' is reserved for {FIELD}; choose another name"),
        (
            {"initContainers": [{"name": "a", "image": "i"}, {"name": "git-sync-code", "image": "i"}]},
            f"initContainers[1].name: 'git-sync-code' is reserved for {FIELD}; choose another name",
        ),
        (
            {"containers": [{"name": "main", "image": "i"}, {"name": "git-sync-code", "image": "i"}]},
            f"containers[1].name: 'git-sync-code' is reserved for {FIELD}; choose another name",
        ),
        (
            {
                "containers": [
                    {"name": "main", "image": "i", "workingDir": "/app", "volumeMounts": [{"name": "v", "mountPath": "/app/train/"}]}
                ]
            },
            f"{MOUNT}: '/app/train' is where {FIELD} puts the code; set its destPath, or choose another path",
        ),
        ({"containers": [{"name": "main", "image": "i", "workingDir": 5}]}, "containers[0].workingDir: must be a string, got 5"),
    ],
)
def test_names_and_paths_of_the_user_that_conflict_are_reported(pod_spec: JsonObject, problem: str) -> None:
    spec = {"containers": [{"name": "main", "image": "i"}], **pod_spec}
    job = make(PairJob, {"runPolicy": {"codeSync": [repository()]}, "replicaSpecs": {"Leader": {"template": {"spec": spec}}}})
    assert problems(job) == [f"{LEADER}.{problem}"]
    without = make(PairJob, {"replicaSpecs": {"Leader": {"template": {"spec": spec}}}})
    assert without.spec.run_policy.code_sync == ()


_texts = st.text(max_size=8) | st.sampled_from(["a", "/a", "..", "a/b", "x::y", "https://a@b/c", "git@h:r", "$(A)", "-x"])
_values = (
    st.none() | st.booleans() | st.integers(-3, 3) | _texts | st.lists(_texts, max_size=2) | st.dictionaries(_texts, _texts, max_size=2)
)
_names = st.sampled_from(
    [
        "source",
        "branch",
        "revision",
        "depth",
        "rootPath",
        "destPath",
        "image",
        "secretName",
        "envs",
        "maxFailures",
        "user",
        "password",
        "ssh",
    ]
)
_repositories = st.lists(st.dictionaries(_names, _values, max_size=5) | _values, max_size=3)


@given(_repositories | _values, st.none() | _values)
def test_any_value_is_either_refused_with_a_field_or_rendered(code_sync: Any, working_dir: Any) -> None:
    job = make(
        PairJob,
        pair_spec(run_policy={"codeSync": code_sync}, workingDir=working_dir),
        annotations={ANNOTATION: encode(code_sync)},
        options=Options(git_sync_image="git-sync:4"),
    )
    reported: tuple[Problem, ...] = ()
    try:
        sources = job.spec.run_policy.code_sync
    except SpecError as error:
        reported, sources = error.problems, ()
    assert all(re.match(r"(spec|metadata\.annotations)[.\[]", problem.path) and problem.message for problem in reported)
    if reported:
        return
    pods = [replica.pod() for replica in job.all_replicas()]
    for pod in pods:
        assert [container["name"] for container in pod["spec"].get("initContainers", [])] == [source.container_name for source in sources]
