"""Names, addresses, configuration files, command lines and certificates of a cluster."""

from __future__ import annotations

import json
import tomllib
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


def command_lines(cluster: Instance) -> dict[str, list[str]]:
    return {p.name: p.argv for p in all_processes(cluster, Path("/kube"), Path("/coredns"))}


def test_address_ranges_of_a_cluster_do_not_overlap() -> None:
    own = [HVD.services, HVD.pods]
    assert all(part.subnet_of(HVD.network) for part in own)
    assert not HVD.services.overlaps(HVD.pods)
    assert not any(HVD.node_ip in part or HVD.host_ip in part for part in own)
    assert HVD.pods.num_addresses > 2 * 110


def test_another_name_gives_other_addresses_directories_and_interface() -> None:
    other = Instance("second")
    assert not HVD.network.overlaps(other.network)
    assert other.network.subnet_of(BENCHMARK_RANGE)
    for attribute in ("state", "run", "store", "link", "cgroup", "node_name"):
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
    longest = Instance("a" * 12)
    assert len(str(longest.containerd_socket)) < 108
    assert len(str(longest.state / "kubelet" / "pod-resources" / "kubelet.sock")) < 108


def test_address_ranges_of_the_names_in_use_do_not_overlap() -> None:
    names = ("hvd", "lifecycle")
    networks = [Instance(name).network for name in names]
    assert not any(a.overlaps(b) for a, b in combinations(networks, 2))


def test_configuration_files_parse_and_agree_with_each_other() -> None:
    files = config.files(HVD)
    kubelet = yaml.safe_load(files[HVD.state / "kubelet.yaml"])
    containerd = tomllib.loads(files[HVD.state / "containerd.toml"])
    network = json.loads(files[HVD.state / "cni" / "10-localkube.conflist"])
    cri = containerd["plugins"]["io.containerd.grpc.v1.cri"]
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{containerd['grpc']['address']}"
    assert kubelet["clusterDNS"] == [str(HVD.node_ip)]
    assert cri["cni"]["conf_dir"] == str(HVD.state / "cni")
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": str(HVD.pods)}]]
    assert f"--service-cluster-ip-range={HVD.services}" in command_lines(HVD)["apiserver"]


def test_full_disk_evicts_no_pod() -> None:
    kubelet = yaml.safe_load(config.kubelet(HVD))
    assert set(kubelet["evictionHard"].values()) == {"0%"}
    assert kubelet["imageGCHighThresholdPercent"] == 100


def test_dns_answers_cluster_names_and_denies_all_others() -> None:
    own, others = config.corefile(HVD).split("\n. {")
    assert "kubernetes cluster.local" in own
    assert "template" not in own
    assert "rcode NXDOMAIN" in others


def test_needed_processes_come_first_and_report_readiness() -> None:
    processes = all_processes(HVD, Path("/kube"), Path("/coredns"))
    seen: dict[str, str] = {}
    for process in processes:
        for need in process.needs:
            assert seen[need], f"{process.name} needs {need}, which does not report readiness"
        seen[process.name] = process.ready


def test_command_lines_of_two_clusters_share_no_path_or_address() -> None:
    others = "\n".join(" ".join(argv) for argv in command_lines(Instance("second")).values())
    assert "/hvd" not in others
    assert str(HVD.node_ip) not in others


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
