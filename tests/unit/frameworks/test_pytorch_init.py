"""Placeholders of a template are replaced, and other syntax of Go templates is rejected."""

from __future__ import annotations

import pytest

from dlop.frameworks.kubeflow.pytorch_init import TemplateError, render_template

TEMPLATE = """
- name: wait
  image: {{.Image}}
  command: [sh, -c, "until nslookup {{.Host}}; do test {{ .Tries }} {{- .Tries -}} ; done"]
"""


def test_placeholders_are_replaced_and_a_dash_removes_adjacent_space() -> None:
    (container,) = render_template(TEMPLATE, Image="example.org/wait:1", Tries="3", Host="demo-master-0")
    assert container["image"] == "example.org/wait:1"
    assert container["command"][2] == "until nslookup demo-master-0; do test 33; done"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("image: {{.Picture}}", "{{.Picture}} is not supported; available: {{.Image}}, {{.Tries}}"),
        ("{{if .Image}}a: b{{end}}", "{{if .Image}} is not supported"),
        ("a: {{.Image}", "{{.Image}}} is not supported"),
        ("a: [b", "invalid YAML"),
    ],
)
def test_an_invalid_template_is_rejected(template: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render_template(template, Image="a", Tries="1")
    assert str(caught.value).startswith(message)
