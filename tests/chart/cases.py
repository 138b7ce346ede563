"""Values that whole-chart checks are run over: the defaults, and every ready case that there is."""

from __future__ import annotations

from ruamel.yaml import YAML

from tests.chart.render import CHART, Values

VALUES = CHART.parents[1] / "values"


def ready_cases() -> dict[str, Values]:
    """Name -> values: values/*.yaml and the chart's ci/*-values.yaml."""
    files = [
        *(file for file in sorted(VALUES.glob("*.yaml")) if not file.name.endswith(".spec.yaml")),
        *sorted((CHART / "ci").glob("*-values.yaml")),
    ]
    cases = {file.name: YAML(typ="safe").load(file.read_text()) for file in files}
    return {"default": {}, **cases}
