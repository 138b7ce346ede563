"""Which group of workers a change is for."""

from __future__ import annotations

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.control import _index_of

GROUPS = [{"name": "cpu"}, {"name": "gpu"}]


def test_the_group_is_found_by_its_name() -> None:
    assert _index_of(GROUPS, "gpu", "hvd") == 1
    assert _index_of(GROUPS[:1], None, "hvd") == 0
    assert _index_of([], None, "hvd") is None


@pytest.mark.parametrize(
    ("group", "wanted"), [(None, "name one with --group"), ("tpu", "'tpu' is none of them")]
)
def test_a_group_that_is_not_clear_is_asked_for(group: str | None, wanted: str) -> None:
    with pytest.raises(ClusterError) as raised:
        _index_of(GROUPS, group, "hvd")
    assert str(raised.value) == f"run hvd has these groups of workers: cpu, gpu; {wanted}"
