"""values/<case>.spec.yaml renders exactly values/<case>.yaml, and the chart's schema takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import load_spec
from hvdchart.values.check import checked_values
from hvdchart.values.render import render_values

VALUES = Path(__file__).parents[3] / "values"
SPECS = sorted(VALUES.glob("*.spec.yaml"))


def golden_of(spec: Path) -> Path:
    return spec.with_name(spec.name.replace(".spec.yaml", ".yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.name)
def test_renders_what_is_committed(spec: Path) -> None:
    rendered = render_values(make_plan(load_spec(spec)), spec.name)
    assert rendered == golden_of(spec).read_text(), "`make goldens` writes them anew"


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.name)
def test_chart_takes_it(spec: Path) -> None:
    assert checked_values(make_plan(load_spec(spec)))


def test_every_values_file_has_a_spec() -> None:
    plain = {path for path in VALUES.glob("*.yaml") if not path.name.endswith(".spec.yaml")}
    assert plain == {golden_of(spec) for spec in SPECS}
    assert SPECS
