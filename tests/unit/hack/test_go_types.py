"""The generated field tables of the embedded API server match the Go sources that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from go_types import SERVED_TYPES, protobuf_table, read_source, type_table
from kubernetes_build import NEWEST_VERSION

pytestmark = pytest.mark.selftest

MODULES = Path.home() / "go" / "pkg" / "mod" / "k8s.io"
VERSION = NEWEST_VERSION.replace("v1.", "v0.", 1)
TABLES = Path(__file__).parents[3] / "dlop" / "embedded" / "apiserver" / "core"


@pytest.mark.skipif(not (MODULES / f"api@{VERSION}").exists(), reason="the Go sources of Kubernetes were not downloaded")
def test_the_tables_are_what_the_generator_makes_of_the_go_sources() -> None:
    source = read_source(MODULES, VERSION)
    assert json.loads((TABLES / "go_types.json").read_text()) == type_table(source, SERVED_TYPES)
    assert json.loads((TABLES / "protobuf.json").read_text()) == protobuf_table(source)
