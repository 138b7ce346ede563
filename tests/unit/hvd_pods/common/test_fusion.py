from __future__ import annotations

import pytest

from hvd_pods.common import fusion

WANTED = {fusion.BY_RANKS: "1"}


@pytest.mark.parametrize(("ranks", "kib"), [(1, 512), (2, 1024), (16, 8192), (1000, 131072)])
def test_threshold_grows_with_the_ranks_up_to_horovods_own(ranks: int, kib: int) -> None:
    assert fusion.choose(ranks, WANTED) == {"HOROVOD_FUSION_THRESHOLD": str(kib * 1024)}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {**WANTED, "HOROVOD_FUSION_THRESHOLD": "0"},
        {**WANTED, "HOROVOD_AUTOTUNE": "1"},
        {**WANTED, "HOROVOD_CPU_OPERATIONS": "gloo"},
    ],
)
def test_threshold_stays_where_somebody_decided_it(given: dict[str, str]) -> None:
    assert fusion.choose(2, given) == {}
