"""What `doctor` reads of a namespace."""

from __future__ import annotations

from hvdchart.run.api import Api
from hvdchart.run.facts import Facts
from tests.fakes.cluster import FakeCluster


def test_server_of_dns_without_a_condition_is_ready(fake_cluster: FakeCluster) -> None:
    """As the API of EndpointSlices says."""
    conditions = [{"ready": False}, {}, None]
    slice_ = {
        "metadata": {"name": "kube-dns-1", "labels": {"k8s-app": "kube-dns"}},
        "endpoints": [{"conditions": each} for each in conditions],
    }
    fake_cluster.put("endpointslices", slice_)
    assert Facts(Api.connect(None)).dns_endpoints() == 2
