"""Whatever a spec holds: values that the chart's schema takes, or one message with a place."""

from __future__ import annotations

import io
import json
import re
import string
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from hvdchart.errors import SpecError
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.values.check import checked_values
from hvdchart.values.render import render_values
from hvdchart.values.report import document
from tests.unit.hvdchart.strategies import damaged_specs, specs

VALUES = Path(__file__).parents[3] / "values"
CASES = [path.read_bytes() for path in sorted(VALUES.glob("*.spec.yaml"))]
# 10,000 specs in all, the same ones each time: a red test is red for everyone.
FUZZ = settings(
    deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)  # fmt: skip


def outcome(data: bytes) -> str:
    """ "rendered" or "refused"; anything else than these two raises."""
    try:
        plan = make_plan(parse_spec(data, "a.yaml"))
        checked_values(plan)
    except SpecError as error:
        message = str(error)
        assert re.match(r"a\.yaml(:\d+:\d+)?: ", message), message
        assert "; expected " in message
        assert message.isprintable(), message
        assert len(message) < 1000, message
        return "refused"
    document(plan)
    return "rendered"


def as_json(spec: Any) -> bytes:
    return json.dumps(spec, ensure_ascii=False).encode("utf-8", "surrogatepass")


@settings(FUZZ, max_examples=1500)
@given(specs())
def test_right_specs(spec: dict[str, Any]) -> None:
    """A few contradictions are left for the spec's checks to find: a static CPU manager's
    fractions, names that are too long together.
    """
    event(outcome(as_json(spec)))


@settings(FUZZ, max_examples=1500)
@given(damaged_specs())
def test_damaged_specs(spec: dict[str, Any]) -> None:
    event(outcome(as_json(spec)))


@settings(FUZZ, max_examples=3000)
@given(st.sampled_from(CASES), st.data())
def test_damaged_text(text: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        noise = st.binary(max_size=4) | st.sampled_from(
            [b"{", b"[", b"]", b"\n", b"\t", b"&a ", b"*a", b"!x ", b"---\n", b"%YAML 9.9\n", b"? ",
             b"|\n", b">-\n", b"<<: ", b"\\ud800", b"\xff", b"\x00", b"'", b'"', b"#", b"- ", b": "]
        )  # fmt: skip
        text = text[:start] + data.draw(noise) + text[end:]
    event(outcome(text))


@settings(FUZZ, max_examples=4000)
@given(
    st.text(alphabet=string.printable + "\u2028\x85\ufeff", max_size=60) | st.binary(max_size=40)
)
def test_any_text(text: str | bytes) -> None:
    assert outcome(text.encode() if isinstance(text, str) else text) == "refused"


@settings(FUZZ, max_examples=150)
@given(specs())
def test_the_text_says_what_the_values_are(spec: dict[str, Any]) -> None:
    """Read back, the rendered YAML is the values: no quoting or comment changes anything."""
    try:
        plan = make_plan(parse_spec(as_json(spec)))
        values = checked_values(plan)
    except SpecError:
        return
    text = render_values(plan)
    for version in ("1.1", "1.2"):
        yaml = YAML(typ="safe", pure=True)
        yaml.version = version
        assert yaml.load(io.StringIO(text)) == values
