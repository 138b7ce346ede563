"""`doctor` judges the values by Pod Security as the standards judge the rendered pods."""

from __future__ import annotations

import pytest

from hvdchart.doctor.pod_security import LEVELS, find_violations
from hvdchart.doctor.security_needs import security_needs
from hvdchart.spec.values_schema import default_values
from hvdchart.values.merge import merge_values
from tests.chart.cases import CASES, EVERY_POD
from tests.chart.render import Manifest, Values, pod_templates, render, with_image
from tests.support.security_cases import SECURITY

ALL: dict[str, Values] = {
    **CASES,
    "every pod": EVERY_POD,
    **{case: values for case, (values, _) in SECURITY.items()},
}


def level_of(needs: list[str]) -> str:
    return max(["restricted", *needs], key=LEVELS.index)


def level_of_pods(manifests: list[Manifest], version: int) -> str:
    templates = pod_templates(manifests).values()
    found = (violation for pod in templates for violation in find_violations(pod, version))
    return level_of([violation.needs for violation in found])


@pytest.mark.parametrize("version", [29, 37])
@pytest.mark.parametrize("case", ALL)
def test_values_need_the_level_of_their_rendered_pods(case: str, version: int) -> None:
    values = merge_values(default_values(), with_image(ALL[case]))
    judged = level_of([*security_needs(values, version).values()])
    assert judged == level_of_pods(render(ALL[case]), version)


@pytest.mark.parametrize("case", SECURITY)
def test_settings_that_widen_or_narrow_a_run_have_their_level(case: str) -> None:
    values, level = SECURITY[case]
    complete = merge_values(default_values(), with_image(values))
    assert level_of([*security_needs(complete).values()]) == level
