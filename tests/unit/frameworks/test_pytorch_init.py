"""Gaps in a template are filled in, and anything else of Go's language is refused in words."""

from __future__ import annotations

import pytest

from dlop.frameworks.kubeflow.pytorch_init import TemplateError, fill_in

TEMPLATE = """
- name: wait
  image: {{.Image}}
  command: [sh, -c, "until nslookup {{.Host}}; do test {{ .Tries }} {{- .Tries -}} ; done"]
"""


def test_gaps_are_filled_in_and_a_dash_takes_the_space_beside_them_away() -> None:
    (container,) = fill_in(TEMPLATE, Image="example.org/wait:1", Tries="3", Host="demo-master-0")
    assert container["image"] == "example.org/wait:1"
    assert container["command"][2] == "until nslookup demo-master-0; do test 33; done"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("image: {{.Picture}}", "{{.Picture}} is not understood; there are {{.Image}}, {{.Tries}}"),
        ("{{if .Image}}a: b{{end}}", "{{if .Image}} is not understood"),
        ("a: {{.Image}", "{{.Image}}} is not understood"),
        ("a: [b", "it is not YAML"),
    ],
)
def test_what_is_not_understood_is_told(template: str, sentence: str) -> None:
    with pytest.raises(TemplateError) as caught:
        fill_in(template, Image="a", Tries="1")
    assert str(caught.value).startswith(sentence)
