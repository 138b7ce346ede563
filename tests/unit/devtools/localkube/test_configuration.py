"""Names, addresses, configuration files, command lines and certificates of a cluster."""

from __future__ import annotations

from itertools import combinations

import pytest

from devtools.common.errors import DevtoolsError
from devtools.localkube import instance
from devtools.localkube.instance import BENCHMARK_RANGE, Instance

HVD = Instance("hvd")


def test_address_ranges_of_a_cluster_do_not_overlap() -> None:
    nodes = (HVD, HVD.second)
    own = [HVD.services, *(node.pods for node in nodes)]
    assert all(part.subnet_of(HVD.network) for part in own)
    assert not any(a.overlaps(b) for a, b in combinations(own, 2))
    ends = [address for node in nodes for address in (node.node_ip, node.gateway_ip)]
    assert len(set(ends)) == 4
    assert not any(end in part for end in ends for part in own)
    assert all(node.pods.num_addresses > 2 * 110 for node in nodes)
    # The tests run two clusters at once.
    others = [Instance(name).network for name in ("second", "lifecycle")]
    assert not any(HVD.network.overlaps(other) for other in others)
    assert all(other.subnet_of(BENCHMARK_RANGE) for other in others)


def test_name_that_cannot_be_an_interface_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a" * 13, "UPPER", "-x", "a b", "../x"):
        monkeypatch.setenv("LOCALKUBE_NAME", name)
        with pytest.raises(DevtoolsError, match="is not a valid name of a cluster"):
            instance.current()
    monkeypatch.setenv("LOCALKUBE_NAME", "a" * 12)
    assert len(instance.current().link) <= 15
