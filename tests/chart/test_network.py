"""NetworkPolicies and service meshes."""

from __future__ import annotations

import pytest

from tests.chart.cases import EVERY_POD, GPU_GROUPS
from tests.chart.render import Manifest, Values, of_kind, one, render, run_pods

NO_SIDECAR = {"sidecar.istio.io/inject": "false"}


def policy_spec(**values: object) -> Manifest:
    """The spec of the run's NetworkPolicy."""
    spec: Manifest = one(render(values), "NetworkPolicy")["spec"]
    return spec


@pytest.mark.promise("network policy selects and admits master and workers")
def test_network_policy_selects_and_admits_master_and_workers() -> None:
    spec = policy_spec()
    assert spec["policyTypes"] == ["Ingress"], "what goes out stays free"
    (rule,) = spec["ingress"]
    assert rule == {"from": [{"podSelector": spec["podSelector"]}]}, "all ports, in its namespace"
    assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "hvd"
    (component,) = spec["podSelector"]["matchExpressions"]
    assert component["values"] == ["master", "worker"]


@pytest.mark.parametrize(
    "peers",
    [[], [{"namespaceSelector": {"matchLabels": {"team": "watching"}}}]],
    ids=["everybody", "peers"],
)
def test_network_policy_admits_to_the_metrics_whom_the_values_name(peers: list[Values]) -> None:
    scrape = policy_spec(metrics={"enabled": True, "allowFrom": peers})["ingress"][1]
    assert scrape == {"ports": [{"port": "metrics"}], **({"from": peers} if peers else {})}


@pytest.mark.promise("helm test may take off its own label where a policy goes by it")
@pytest.mark.parametrize(
    ("values", "probes"),
    [({}, True), ({"networkPolicy": {"enabled": False}}, False), ({"hostNetwork": True}, False)],
    ids=["default", "no policy", "hostNetwork"],
)
def test_helm_test_may_take_off_its_own_label_where_a_policy_goes_by_it(
    values: Values, probes: bool
) -> None:
    manifests = render(values)
    tester = one(manifests, "Pod")
    (container,) = tester["spec"]["containers"]
    names = {entry["name"] for entry in container["env"]}
    rules = [rule for rule in one(manifests, "Role")["rules"] if rule["resources"] == ["pods"]]
    patched = [rule["resourceNames"] for rule in rules if "patch" in rule["verbs"]]
    assert ("HVD_POLICY" in names) is probes
    assert patched == ([[tester["metadata"]["name"]]] if probes else [])


@pytest.mark.parametrize(
    ("mesh", "labels", "annotations"),
    [
        (
            "Disabled",
            {**NO_SIDECAR, "istio.io/dataplane-mode": "none"},
            {"linkerd.io/inject": "disabled"},
        ),
        # A native sidecar, and elsewhere one that starts before the containers.
        (
            "Hold",
            {},
            {
                "sidecar.istio.io/nativeSidecar": "true",
                "config.beta.linkerd.io/proxy-enable-native-sidecar": "true",
                "proxy.istio.io/config": '{"holdApplicationUntilProxyStarts": true}',
                "config.linkerd.io/proxy-await": "enabled",
            },
        ),
        ("Ambient", {**NO_SIDECAR, "istio.io/dataplane-mode": "ambient"}, {}),
    ],
)
def test_mesh_setting_reaches_every_pod(
    mesh: str, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    manifests = render({**EVERY_POD, **GPU_GROUPS, "serviceMesh": mesh})
    board = one(manifests, "Deployment")["spec"]["template"]
    pods = [template["metadata"] for template in (*run_pods(manifests), board)]
    assert [pod["labels"] for pod in pods] == [{**pod["labels"], **labels} for pod in pods]
    assert [pod.get("annotations", {}) for pod in pods] == [annotations] * len(pods)


def test_network_policy_admits_the_probes_of_an_ambient_mesh() -> None:
    pods, probes = one(render({"serviceMesh": "Ambient"}), "NetworkPolicy")["spec"]["ingress"]
    assert "ports" not in pods, "port 15008 of the mesh is among all ports"
    assert {peer["ipBlock"]["cidr"].rpartition("/")[2] for peer in probes["from"]} == {"32", "128"}


@pytest.mark.parametrize("peers", [[], [{"podSelector": {}}]], ids=["nobody else", "peers"])
def test_policy_of_tensorboard_admits_the_probes_of_an_ambient_mesh(peers: list[Values]) -> None:
    board = {**EVERY_POD["tensorboard"], "allowFrom": peers}
    manifests = render({**EVERY_POD, "serviceMesh": "Ambient", "tensorboard": board})
    policies = of_kind(manifests, "NetworkPolicy")
    run_rules, board_rules = (policy["spec"]["ingress"] for policy in policies)
    assert board_rules[-1] == run_rules[-1]
    assert [rule["from"] for rule in board_rules[:-1]] == ([peers] if peers else [])
