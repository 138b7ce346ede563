"""Ports, NetworkPolicies, interfaces and transports."""

from __future__ import annotations

import pytest

from tests.chart.render import Values, of_kind, one, pod_spec, refusal, render, run_settings
from tests.chart.test_placement import GPU_GROUPS, run_pods

ROOT: Values = {"runAsUser": 0, "runAsNonRoot": False}


def test_host_network_applies_to_workers_only() -> None:
    manifests = render({"hostNetwork": True, "hostPID": True})
    spec = pod_spec(one(manifests, "StatefulSet"))
    assert (spec["hostNetwork"], spec["hostPID"]) == (True, True)
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    for other in (pod_spec(one(manifests, "Job")), *(pod["spec"] for pod in run_pods(render()))):
        assert not other.keys() & {"hostNetwork", "hostPID", "dnsPolicy"}


def test_host_network_interface_is_set_for_ranks_only() -> None:
    for host_network, of_master in ((False, "ib0"), (True, "")):
        manifests = render({"hostNetwork": host_network, "network": {"interface": "ib0"}})
        environment = pod_spec(one(manifests, "StatefulSet"))["containers"][0]["env"]
        named = {entry["name"] for entry in environment if entry.get("value") == "ib0"}
        assert named == {
            "NCCL_SOCKET_IFNAME",
            "HOROVOD_GLOO_IFACE",
            "OMPI_MCA_btl_tcp_if_include",
            "FI_TCP_IFACE",
            "UCX_NET_DEVICES",
        }
        assert run_settings(manifests)["interface"] == of_master


def test_transport_sets_the_variables_of_every_library() -> None:
    def named(**network: str) -> tuple[dict[str, str], str]:
        manifests = render({"network": network})
        environment = pod_spec(one(manifests, "StatefulSet"))["containers"][0]["env"]
        values = {entry["name"]: entry.get("value", "") for entry in environment}
        return values, run_settings(manifests)["transport"]

    tcp, of_master = named(transport="TCP", interface="eth1")
    assert of_master == "TCP"
    assert (tcp["FI_PROVIDER"], tcp["UCX_TLS"]) == ("tcp", "self,sm,tcp")
    assert (tcp["NCCL_IB_DISABLE"], tcp["UCX_NET_DEVICES"]) == ("1", "eth1")
    rdma, of_master = named(transport="RDMA", interface="eth1")
    assert of_master == "RDMA"
    assert "UCX_NET_DEVICES" not in rdma, "UCX would not see the RDMA devices"
    assert not {*rdma, *named()[0]} & {"FI_PROVIDER", "UCX_TLS", "NCCL_IB_DISABLE"}


@pytest.mark.parametrize("port", [6443, 10250, 32000])
def test_host_network_refuses_ports_of_kubernetes(port: int) -> None:
    message = refusal({"hostNetwork": True, "ssh": {"port": port}})
    assert "hostNetwork" in message
    assert f"ssh.port is {port}" in message
    render({"ssh": {"port": port}})
    render({"hostNetwork": True, "ssh": {"port": 30000 - 1}})


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_network_policy_defaults_to_on_without_host_network(helm: str) -> None:
    asked: list[tuple[Values, int]] = [
        ({}, 1),
        ({"networkPolicy": {"enabled": None}}, 1),
        ({"hostNetwork": True}, 0),
        ({"networkPolicy": {"enabled": False}}, 0),
        ({"networkPolicy": {"enabled": False}, "hostNetwork": True}, 0),
    ]
    for values, made in asked:
        assert len(of_kind(render(values, helm=helm), "NetworkPolicy")) == made, values


def test_network_policy_selects_and_admits_master_and_workers() -> None:
    spec = one(render(), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"], "what goes out stays free"
    (rule,) = spec["ingress"]
    assert rule == {"from": [{"podSelector": spec["podSelector"]}]}, "all ports, in its namespace"
    assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "hvd"
    (component,) = spec["podSelector"]["matchExpressions"]
    assert component["values"] == ["master", "worker"]


def test_network_policy_with_host_network_is_refused() -> None:
    message = refusal({"networkPolicy": {"enabled": True}, "hostNetwork": True})
    assert "networkPolicy.enabled" in message
    assert "hostNetwork" in message


@pytest.mark.parametrize("policy", ["", "SingleStack", "PreferDualStack", "RequireDualStack"])
def test_service_has_the_ip_family_policy(policy: str) -> None:
    service = one(render({"network": {"ipFamilyPolicy": policy}}), "Service")
    assert service["spec"].get("ipFamilyPolicy", "") == policy


def test_mesh_disabled_turns_injection_off_in_every_pod() -> None:
    for template in run_pods(render({**GPU_GROUPS, "serviceMesh": "Disabled"})):
        assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        assert template["metadata"]["labels"]["istio.io/dataplane-mode"] == "none"
        assert template["metadata"]["annotations"]["linkerd.io/inject"] == "disabled"


def test_mesh_hold_asks_for_a_native_sidecar_and_holds_where_there_is_none() -> None:
    for template in run_pods(render({**GPU_GROUPS, "serviceMesh": "Hold"})):
        assert template["metadata"]["annotations"] == {
            "sidecar.istio.io/nativeSidecar": "true",
            "config.beta.linkerd.io/proxy-enable-native-sidecar": "true",
            "proxy.istio.io/config": '{"holdApplicationUntilProxyStarts": true}',
            "config.linkerd.io/proxy-await": "enabled",
        }


def test_ambient_mesh_gets_pods_without_sidecars_and_its_probes_in() -> None:
    manifests = render({**GPU_GROUPS, "serviceMesh": "Ambient"})
    for template in run_pods(manifests):
        assert template["metadata"]["labels"]["istio.io/dataplane-mode"] == "ambient"
        assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        assert "annotations" not in template["metadata"]
    own, probes = one(manifests, "NetworkPolicy")["spec"]["ingress"]
    # All ports, so that port 15008 of the mesh is among them.
    assert own == one(render(), "NetworkPolicy")["spec"]["ingress"][0]
    assert "ports" not in own
    assert {peer["ipBlock"]["cidr"].rpartition("/")[2] for peer in probes["from"]} == {"32", "128"}


def test_ambient_mesh_with_host_network_is_refused() -> None:
    message = refusal({"serviceMesh": "Ambient", "hostNetwork": True})
    assert "serviceMesh is Ambient" in message
    assert "hostNetwork is true" in message


def test_pod_annotations_of_the_user_override_the_mesh_setting() -> None:
    values = {"serviceMesh": "Disabled", "worker": {"podLabels": {"sidecar.istio.io/inject": "x"}}}
    workers = one(render(values), "StatefulSet")["spec"]["template"]
    assert workers["metadata"]["labels"]["sidecar.istio.io/inject"] == "x"


def test_capabilities_are_set_per_group_and_for_root_only() -> None:
    groups: Values = {
        "workerGroups": [
            {"name": "plain"},
            {
                "name": "rdma",
                "capabilities": ["IPC_LOCK"],
                "resources": {"limits": {"rdma/hca": 1}},
            },
        ]
    }
    plain, rdma = of_kind(render({**groups, "podSecurityContext": ROOT}), "StatefulSet")
    context = pod_spec(rdma)["containers"][0]["securityContext"]
    assert context["capabilities"] == {
        "drop": ["ALL"],
        "add": ["IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT"],
    }
    assert context["allowPrivilegeEscalation"] is False
    of_plain = pod_spec(plain)["containers"][0]["securityContext"]["capabilities"]["add"]
    assert "IPC_LOCK" not in of_plain
    message = refusal(groups)
    for word in ('group "rdma"', "capabilities", "IPC_LOCK", "podSecurityContext.runAsUser"):
        assert word in message
