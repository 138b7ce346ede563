"""What the values add to pods: fields, containers, identities and further objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, refusal, render
from tests.chart.test_security import EVERY_POD

PROBE = {"exec": {"command": ["true"]}}
CONTAINER = {"name": "log-shipper", "image": "registry.example/log:1"}
NATIVE = {"name": "proxy", "image": "registry.example/proxy:1", "restartPolicy": "Always"}
ADDITIONS: Values = {
    "podLabels": {"team": "vision"},
    "podAnnotations": {"cost": "42"},
    "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["data.example"]}],
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "mine"},
            "data": {"text": "{{ not a template }}"},
        }
    ],
    "worker": {
        "serviceAccount": {"create": True, "annotations": {"example/role": "reader"}},
        "envFrom": [{"secretRef": {"name": "credentials"}}],
        "initContainers": [NATIVE],
        "extraContainers": [CONTAINER],
        "terminationGracePeriodSeconds": 0,
        "podSpec": {"shareProcessNamespace": True},
        "container": {"livenessProbe": PROBE},
    },
    "master": {
        "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
        "initContainers": [NATIVE],
        "terminationGracePeriodSeconds": 120,
        "podSpec": {"shareProcessNamespace": True},
        "container": {"lifecycle": {"preStop": PROBE}},
    },
}


def pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return the pod templates of all workloads, and the pod of `helm test`."""
    workloads = [item for item in manifests if item["kind"] in ("StatefulSet", "Job", "Deployment")]
    return [*(item["spec"]["template"] for item in workloads), one(manifests, "Pod")]


def test_additions_reach_the_worker_and_the_master() -> None:
    manifests = render(ADDITIONS)
    worker, master = (pod_spec(one(manifests, kind)) for kind in ("StatefulSet", "Job"))
    for spec, values in ((worker, ADDITIONS["worker"]), (master, ADDITIONS["master"])):
        assert spec["shareProcessNamespace"] is True
        period = values["terminationGracePeriodSeconds"]
        assert spec["terminationGracePeriodSeconds"] == period
        assert spec["containers"][0]["envFrom"] == values["envFrom"]
        assert spec["containers"][0].items() >= values["container"].items()
        assert [container["name"] for container in spec["initContainers"]] == ["proxy"]
    assert [container["name"] for container in worker["containers"]] == ["worker", "log-shipper"]


def test_workers_claim_devices() -> None:
    """The form of a claim is that of Kubernetes 1.31 and newer; the chart passes on any."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    resources = {"claims": [{"name": "gpu"}]}
    spec = pod_spec(
        one(render({"worker": {"resourceClaims": claims, "resources": resources}}), "StatefulSet")
    )
    assert spec["resourceClaims"] == claims
    assert spec["containers"][0]["resources"] == resources


def test_labels_annotations_and_names_reach_all_pods() -> None:
    values = {**ADDITIONS, "tensorboard": EVERY_POD["tensorboard"]}
    values |= {key: EVERY_POD[key] for key in ("volumes", "volumeMounts")}
    templates = pods(render(values))
    assert len(templates) == 4
    for template in templates:
        assert template["metadata"]["labels"]["team"] == "vision"
        assert template["metadata"]["annotations"]["cost"] == "42"
        assert template["spec"]["dnsConfig"] == ADDITIONS["dnsConfig"]
        assert template["spec"]["hostAliases"] == ADDITIONS["hostAliases"]


def test_labels_of_one_kind_of_pod_override_those_of_all() -> None:
    manifests = render({"podLabels": {"a": "1"}, "worker": {"podLabels": {"a": "2"}}})
    labels = [
        one(manifests, kind)["spec"]["template"]["metadata"]["labels"]["a"]
        for kind in ("StatefulSet", "Job")
    ]
    assert labels == ["2", "1"]


def test_containers_of_the_user_pass_pod_security() -> None:
    """They get the chart's security context, unless they have one."""
    own = {"securityContext": {"runAsUser": 5}}
    worker = {"initContainers": [{**NATIVE, **own}], "extraContainers": [CONTAINER]}
    spec = pod_spec(one(render({"worker": worker}), "StatefulSet"))
    assert spec["initContainers"][0]["securityContext"] == own["securityContext"]
    main, shipper = spec["containers"]
    assert shipper["securityContext"] == main["securityContext"]
    assert shipper["securityContext"]["allowPrivilegeEscalation"] is False


def test_init_containers_run_before_staging() -> None:
    """A sidecar that mounts a bucket must run before the data are fetched."""
    spec = pod_spec(
        one(render({**EVERY_POD, "worker": {"initContainers": [NATIVE]}}), "StatefulSet")
    )
    assert [item["name"] for item in spec["initContainers"]] == ["passwd", "proxy", "staging"]


def accounts(values: Values) -> dict[str, Any]:
    """Return the annotations of each ServiceAccount by name."""
    made = of_kind(render(values), "ServiceAccount")
    assert all(item["automountServiceAccountToken"] is False for item in made)
    return {item["metadata"]["name"]: item["metadata"].get("annotations") for item in made}


def test_workers_have_an_identity_and_no_token() -> None:
    """Clouds hand out their own tokens for a ServiceAccount with an annotation."""
    assert accounts(ADDITIONS) == {"hvd-master": None, "hvd-worker": {"example/role": "reader"}}
    manifests = render(ADDITIONS)
    spec = pod_spec(one(manifests, "StatefulSet"))
    assert spec["serviceAccountName"] == "hvd-worker"
    assert spec["automountServiceAccountToken"] is False
    (binding,) = of_kind(manifests, "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == ["hvd-master"]
    asked = render({"worker": {"automountServiceAccountToken": True}})
    assert pod_spec(one(asked, "StatefulSet"))["automountServiceAccountToken"] is True


def test_group_has_an_identity_of_its_own() -> None:
    groups = [{"name": "a"}, {"name": "b", "serviceAccount": {"name": "other", "create": False}}]
    values = {"worker": ADDITIONS["worker"], "workerGroups": groups}
    names = [
        pod_spec(item)["serviceAccountName"] for item in of_kind(render(values), "StatefulSet")
    ]
    assert names == ["hvd-worker", "other"]
    assert set(accounts(values)) == {"hvd-master", "hvd-worker"}


def test_extra_objects_are_applied_as_they_are() -> None:
    (mine,) = (
        item
        for item in of_kind(render(ADDITIONS), "ConfigMap")
        if item["metadata"]["name"] == "mine"
    )
    assert mine == ADDITIONS["extraObjects"][0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"worker": {"podSpec": {"nodeSelector": {}}}},
            ["worker.podSpec has nodeSelector", "use worker.nodeSelector"],
        ),
        (
            {"workerGroups": [{"name": "a", "podSpec": {"containers": []}}]},
            ["workerGroups[a].podSpec has containers", "use worker.extraContainers"],
        ),
        (
            {"master": {"podSpec": {"restartPolicy": "Always"}}},
            ["master.podSpec has restartPolicy", "remove it"],
        ),
        # A StatefulSet sets these, and the host names of the ranks depend on them.
        (
            {"worker": {"podSpec": {"subdomain": "x"}}},
            ["worker.podSpec has subdomain", "remove it"],
        ),
        ({"worker": {"podSpec": {"hostname": "x"}}}, ["worker.podSpec has hostname", "remove it"]),
        (
            {"master": {"container": {"command": ["x"]}}},
            ["master.container has command", "use master.args"],
        ),
        (
            {"hostNetwork": True, "worker": {"podSpec": {"dnsPolicy": "Default"}}},
            ["worker.podSpec has dnsPolicy", "hostNetwork"],
        ),
        (
            {"worker": {"extraContainers": [{"name": "worker"}]}},
            ["worker", 'named "worker"', "rename"],
        ),
        (
            {"worker": {"initContainers": [{"name": "a"}], "extraContainers": [{"name": "a"}]}},
            ['named "a"', "rename"],
        ),
        (
            {"podLabels": {"app.kubernetes.io/component": "x"}},
            ["podLabels has app.kubernetes.io/component", "selectors"],
        ),
        (
            {
                "worker": {"serviceAccount": {"create": True}},
                "workerGroups": [
                    {"name": "a"},
                    {"name": "b", "serviceAccount": {"annotations": {"role": "x"}}},
                ],
            },
            ['group "a"', 'group "b"', '"hvd-worker"', "name of its own"],
        ),
        (
            {
                "serviceAccount": {"name": "x"},
                "worker": {"serviceAccount": {"create": True, "name": "x"}},
            },
            ["serviceAccount and worker.serviceAccount", '"x"'],
        ),
    ],
)
def test_what_would_break_the_chart_is_refused(values: Values, words: list[str]) -> None:
    message = refusal(values)
    for word in words:
        assert word in message


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_every_field_that_the_chart_renders_is_refused(kind: str) -> None:
    """The list of refused fields must not miss one, which would then be there twice."""
    of = {"StatefulSet": "worker", "Job": "master"}[kind]
    everything = {**EVERY_POD, **ADDITIONS, "hostNetwork": True, "hostPID": True}
    everything |= {
        "priorityClassName": "x",
        "schedulerName": "x",
        "imagePullSecrets": [{"name": "x"}],
    }
    everything |= {"metrics": {"enabled": True}}
    more = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "runtimeClassName": "x",
    }
    more |= {"topologySpreadConstraints": [{"topologyKey": "x"}]}
    more |= {"resourceClaims": [{"name": "x"}]} if of == "worker" else {}
    everything[of] = {**ADDITIONS[of], **more, "podSpec": {}, "container": {}}
    spec = pod_spec(one(render(everything), kind))
    for where, fields in (("podSpec", spec), ("container", spec["containers"][0])):
        for field in fields.keys() - {*ADDITIONS[of]["container"]}:
            message = refusal({"hostNetwork": True, of: {where: {field: "x"}}})
            assert f"{of}.{where} has {field}" in message
