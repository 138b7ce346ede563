"""What the plan reads of the launchers' data."""

from __future__ import annotations

import pytest

from hvdchart.quantity import MI
from hvdchart.spec.launchers import launcher_memory


@pytest.mark.parametrize(
    ("mode", "mebibytes"), [("mpirun", 0), ("custom", 0), ("horovodrun", 148), ("elastic", 148)]
)
def test_launchers_with_a_client_for_each_rank_need_memory(mode: str, mebibytes: int) -> None:
    assert launcher_memory(mode, 10) == mebibytes * MI
