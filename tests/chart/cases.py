"""The values for checks of the whole chart: the defaults, values/ and the chart's ci/ folder."""

from __future__ import annotations

from functools import cache

from ruamel.yaml import YAML

from tests.chart.render import CHART, Manifest, Values, render

VALUES = CHART.parents[1] / "values"


@cache
def ready_cases() -> dict[str, Values]:
    """Return the values of each case by name: values/*.yaml and the chart's ci/*-values.yaml."""
    files = [
        *(file for file in sorted(VALUES.glob("*.yaml")) if not file.name.endswith(".spec.yaml")),
        *sorted((CHART / "ci").glob("*-values.yaml")),
    ]
    cases = {file.name: YAML(typ="safe").load(file.read_text()) for file in files}
    return {"default": {}, **cases}


@cache
def ready_manifests(case: str) -> list[Manifest]:
    """Return the manifests of a case, which are cached: callers must not change them."""
    return render(ready_cases()[case])
