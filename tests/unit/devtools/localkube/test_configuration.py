"""Names, addresses, configuration files, command lines and certificates of a cluster."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube import instance
from devtools.localkube.instance import BENCHMARK_RANGE, Instance
from devtools.localkube.processes import all_processes

HVD = Instance("hvd")


def command_lines(cluster: Instance) -> dict[str, list[str]]:
    return {p.name: p.argv for p in all_processes(cluster, Path("/kube"), Path("/coredns"))}


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


@pytest.mark.parametrize("other", [Instance("second"), HVD.second])
def test_another_node_has_other_directories_and_another_interface(other: Instance) -> None:
    for attribute in ("state", "run", "store", "link", "cgroup", "node_name", "kubelet_keys"):
        assert getattr(HVD, attribute) != getattr(other, attribute)


def test_name_that_cannot_be_an_interface_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a" * 13, "UPPER", "-x", "a b", "../x"):
        monkeypatch.setenv("LOCALKUBE_NAME", name)
        with pytest.raises(LocalkubeError, match="is not a valid name of a cluster"):
            instance.current()
    monkeypatch.setenv("LOCALKUBE_NAME", "a" * 12)
    assert len(instance.current().link) <= 15


def test_socket_paths_are_short_enough() -> None:
    # sun_path has 108 bytes, the last a NUL (unix(7)); the kubelet's are the longest below `state`.
    longest = Instance("a" * 12).second
    assert len(str(longest.containerd_socket)) < 108
    assert len(str(longest.state / "kubelet" / "pod-resources" / "kubelet.sock")) < 108


def test_command_lines_of_two_clusters_share_no_path_or_address() -> None:
    others = "\n".join(" ".join(argv) for argv in command_lines(Instance("second")).values())
    assert "/hvd" not in others
    assert str(HVD.node_ip) not in others
