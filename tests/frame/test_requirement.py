"""What a test run does where the real control plane is missing."""

from __future__ import annotations

from pathlib import Path

from tests.frame.scripts import python, without_control_plane

NEEDS_CLUSTER = "tests/frame/test_real_cluster.py::test_users_besides_the_admin_have_a_token_and_no_rights"
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", NEEDS_CLUSTER)


def test_without_the_real_server_its_tests_are_skipped_with_one_loud_line(tmp_path: Path) -> None:
    answer = python(*PYTEST, environment=without_control_plane(tmp_path))
    assert answer.returncode == 0, answer.stdout
    assert "1 skipped" in answer.stdout
    assert answer.stdout.count("THE REAL API SERVER WAS NOT TESTED: 1 tests skipped") == 1


def test_where_the_real_server_is_required_its_absence_is_a_failure(tmp_path: Path) -> None:
    answer = python(*PYTEST, environment={**without_control_plane(tmp_path), "DLOP_REQUIRE_CLUSTER": "1"})
    assert answer.returncode == 1
    assert "`hack/cluster up --controllers` builds them there, once" in answer.stdout
