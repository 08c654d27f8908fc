"""The path of a pod event through the code stays short, and `dlop/controller/README.md` describes it."""

from __future__ import annotations

import pytest
from event_walk import PAGE, trace_pod_event

pytestmark = pytest.mark.selftest


def test_a_pod_event_passes_few_modules_and_the_page_lists_them() -> None:
    hops = trace_pod_event()
    assert len(hops) <= 63
    assert len([hop for hop in hops if not hop.is_plain_value]) <= 43
    page = PAGE.read_text()
    assert [hop.path for hop in hops if f"| `{hop.path}` |" not in page] == []
