"""Each values/NAME.spec.yaml renders values/NAME.yaml, which the chart's schema accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import load_spec
from hvdchart.values.render import render_values

VALUES = Path(__file__).parents[4] / "values"
SPECS = sorted(VALUES.glob("*.spec.yaml"))


def golden_file(spec: Path) -> Path:
    return spec.with_name(spec.name.replace(".spec.yaml", ".yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.name)
def test_example_renders_its_committed_values(spec: Path) -> None:
    rendered = render_values(make_plan(load_spec(spec)), spec.name)
    assert rendered == golden_file(spec).read_text(), "run `make goldens`"
