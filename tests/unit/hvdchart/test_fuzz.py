"""Generated inputs: every spec becomes values that the chart accepts, or one message with a place.

`make fuzz` tries many, any other run few: conftest.py has the numbers.
"""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from devtools.common.repository import EXAMPLE_VALUES
from hvd_pods.shared.untrusted import printable
from hvdchart.errors import SpecError
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec, read_spec
from hvdchart.spec.yaml_tree import parse_document
from hvdchart.values.check_values import checked_values
from hvdchart.values.plan_text import document
from hvdchart.values.render import render_values
from tests.support.strategies import as_json, damaged, specs

CASES = [path.read_bytes() for path in sorted(EXAMPLE_VALUES.glob("*.spec.yaml"))]
pytestmark = pytest.mark.fuzz


def outcome(data: bytes) -> str:
    """ "rendered" or "refused"; anything but these two raises."""
    try:
        tree = parse_document(data, "a.yaml")
        plan = make_plan(read_spec(tree), tree)
        checked_values(plan)
    except SpecError as error:
        check_messages(error)
        return "refused"
    document(plan)
    return "rendered"


def check_messages(refused: SpecError) -> None:
    """Each error has a place and what was expected, in one line; there are at most 20 of them."""
    for message in map(str, refused.errors):
        assert re.match(r"a\.yaml(:\d+:\d+)?: ", message), message
        assert "; expected " in message
        assert printable(message, keeps="") == message
        assert len(message) < 1000, message
    lines = str(refused).splitlines()
    assert lines[0] == str(refused.errors[0])
    assert len(lines) <= 21


@given(specs())
def test_right_specs_are_rendered(spec: dict[str, Any]) -> None:
    """Read back, the rendered YAML has the values, in both versions of YAML."""
    plan = make_plan(parse_spec(as_json(spec)))
    values = checked_values(plan)
    text = render_values(plan)
    for version in ("1.1", "1.2"):
        yaml = YAML(typ="safe", pure=True)
        yaml.version = version
        assert yaml.load(io.StringIO(text)) == values


@given(damaged(specs()))
def test_damaged_specs_are_rendered_or_refused(spec: dict[str, Any]) -> None:
    event(outcome(as_json(spec)))


@given(st.sampled_from(CASES), st.data())
def test_damaged_text_is_rendered_or_refused(text: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        noise = st.binary(max_size=4) | st.sampled_from(
            [
                b"{",
                b"[",
                b"]",
                b"\n",
                b"\t",
                b"&a ",
                b"*a",
                b"!x ",
                b"---\n",
                b"%YAML 9.9\n",
                b"? ",
                b"|\n",
                b">-\n",
                b"<<: ",
                b"\\ud800",
                b"\xff",
                b"\x00",
                b"'",
                b'"',
                b"#",
                b"- ",
                b": ",
            ]
        )
        text = text[:start] + data.draw(noise) + text[end:]
    event(outcome(text))
