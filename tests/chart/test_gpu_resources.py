"""The chart and hvdchart count the same resources as GPUs: by files/resources.json."""

from __future__ import annotations

import pytest

from hvdchart.chart_files import is_gpu
from tests.chart.render import helm_template

ONE_RANK_EACH = [
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.5gb",
    "amd.com/gpu",
    "amd.com/cpx_nps4",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
]
OTHERS = ["nvidia.com/gpus", "nvidiaxcom/gpu", "x.nvidia.com/gpu", "rdma/hca", "cpu"]


@pytest.mark.parametrize("resource", [*ONE_RANK_EACH, *OTHERS])
def test_chart_wants_as_many_slots_as_gpus(resource: str) -> None:
    assert is_gpu(resource) == (resource in ONE_RANK_EACH)
    done = helm_template({"worker": {"slots": 1, "resources": {"limits": {resource: 2}}}})
    assert (done.returncode != 0) == is_gpu(resource), done.stderr
    if is_gpu(resource):
        assert f'slots is 1 but resources.limits["{resource}"] is 2' in done.stderr
