"""Whether a release is there."""

from __future__ import annotations

from hvdchart.run.release import Release
from tests.unit.hvdchart.runs import STATEFUL_SET


def test_a_release_exists_where_it_has_an_object() -> None:
    assert Release("hvd", [], [STATEFUL_SET], [], []).exists is True
    assert Release("hvd", [], [], [], []).exists is False
