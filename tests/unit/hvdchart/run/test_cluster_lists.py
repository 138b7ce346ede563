"""How requests for lists are named in errors."""

from __future__ import annotations

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from tests.fakes.cluster import FakeCluster


@pytest.mark.parametrize(
    ("everywhere", "where"), [(False, "in namespace team"), (True, "in all namespaces")]
)
def test_a_refused_list_of_releases_says_where(
    fake_cluster: FakeCluster, everywhere: bool, where: str
) -> None:
    fake_cluster.refusals["jobs list"] = (403, "no right")
    with pytest.raises(ClusterError, match=f"^cannot list jobs {where}: you are not allowed to"):
        Cluster.connect().releases(everywhere=everywhere)
