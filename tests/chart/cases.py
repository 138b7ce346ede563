"""Values that whole-chart checks are run over: the defaults, and every ready case that there is."""

from __future__ import annotations

from functools import cache

from ruamel.yaml import YAML

from tests.chart.render import CHART, Manifest, Values, render

VALUES = CHART.parents[1] / "values"


@cache
def ready_cases() -> dict[str, Values]:
    """Name -> values: values/*.yaml and the chart's ci/*-values.yaml."""
    files = [
        *(file for file in sorted(VALUES.glob("*.yaml")) if not file.name.endswith(".spec.yaml")),
        *sorted((CHART / "ci").glob("*-values.yaml")),
    ]
    cases = {file.name: YAML(typ="safe").load(file.read_text()) for file in files}
    return {"default": {}, **cases}


@cache
def ready_manifests(case: str) -> list[Manifest]:
    """What a ready case renders; not to be changed."""
    return render(ready_cases()[case])
