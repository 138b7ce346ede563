"""Names, addresses, configuration files, command lines and certificates of a cluster."""

from __future__ import annotations

import json
import tomllib
from base64 import b64decode
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from devtools.common.errors import LocalkubeError
from devtools.localkube import config, instance, pki
from devtools.localkube.instance import BENCHMARK_RANGE, Instance
from devtools.localkube.processes import all_processes

HVD = Instance("hvd")
BOTH = pytest.mark.parametrize("node", [HVD, HVD.second])


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


def test_second_node_uses_the_first_ones_control_plane_and_keys() -> None:
    for attribute in ("network", "services", "api_url", "control_ip", "pki", "kubeconfig"):
        assert getattr(HVD, attribute) == getattr(HVD.second, attribute)
    assert {"kubelet", "containerd", "proxy"} < command_lines(HVD.second).keys()
    assert not {"apiserver", "coredns", "etcd", "scheduler"} & command_lines(HVD.second).keys()


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


@BOTH
def test_configuration_files_parse_and_agree_with_each_other(node: Instance) -> None:
    files = config.files(node)
    kubelet = yaml.safe_load(files[node.state / "kubelet.yaml"])
    containerd = tomllib.loads(files[node.state / "containerd.toml"])
    network = json.loads(files[node.state / "cni" / "10-localkube.conflist"])
    cri = containerd["plugins"]["io.containerd.grpc.v1.cri"]
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{containerd['grpc']['address']}"
    assert kubelet["clusterDNS"] == [str(HVD.node_ip)]
    assert cri["cni"]["conf_dir"] == str(node.state / "cni")
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": str(node.pods)}]]
    assert f"--service-cluster-ip-range={HVD.services}" in command_lines(HVD)["apiserver"]


def test_dns_answers_cluster_names_and_denies_all_others() -> None:
    own, others = config.corefile(HVD).split("\n. {")
    assert "kubernetes cluster.local" in own
    assert "template" not in own
    assert "rcode NXDOMAIN" in others


@BOTH
def test_needed_processes_come_first_and_report_readiness(node: Instance) -> None:
    processes = all_processes(node, Path("/kube"), Path("/coredns"))
    seen: dict[str, str] = {}
    for process in processes:
        for need in process.needs:
            assert seen[need], f"{process.name} needs {need}, which does not report readiness"
        seen[process.name] = process.ready


def test_command_lines_of_two_clusters_share_no_path_or_address() -> None:
    others = "\n".join(" ".join(argv) for argv in command_lines(Instance("second")).values())
    assert "/hvd" not in others
    assert str(HVD.node_ip) not in others


def test_each_node_logs_in_as_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Instance, "state", property(lambda self: tmp_path / self.label))
    HVD.state.mkdir()
    pki.write_all(HVD)
    for node in (HVD, HVD.second):
        client = yaml.safe_load(node.kubelet_keys.with_suffix(".conf").read_text())
        assert client["clusters"][0]["cluster"]["server"] == HVD.api_url
        user = b64decode(client["users"][0]["user"]["client-certificate-data"])
        server = node.kubelet_keys.with_suffix(".crt").read_bytes()
        names = [
            x509.load_pem_x509_certificate(pem).subject.rfc4514_string() for pem in (user, server)
        ]
        assert f"CN=system:node:{node.node_name}" in names[0]
        assert names[1] == f"CN={node.node_name}"


def test_certificate_names_user_groups_and_hosts() -> None:
    authority = pki.Authority("test")
    pair = authority.issue("system:node:n", ["system:nodes"], hosts=["n", "198.18.0.1"])
    issued = x509.load_pem_x509_certificate(pair.certificate)
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    name = issued.subject.get_attributes_for_oid
    assert name(NameOID.COMMON_NAME)[0].value == "system:node:n"
    assert name(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    hosts = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["n"]
    assert [str(ip) for ip in hosts.get_values_for_type(x509.IPAddress)] == ["198.18.0.1"]
    assert (issued.not_valid_after_utc - issued.not_valid_before_utc).days >= 365
