"""The objects that the chart creates, their programs, and what they have in common."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import Counter

import pytest

from devtools.common.repository import CHART
from devtools.docs_gen import programs
from devtools.toolchain.tools import tool
from hvd_pods.master import selftest
from hvd_pods.pod import code_archive
from hvd_pods.shared import exit_codes
from tests.chart.cases import EVERY_POD, GROUPS
from tests.chart.render import (
    Manifest,
    Values,
    containers_of,
    main_container,
    of_kind,
    one,
    pod_spec,
    pod_specs,
    ready_cases,
    ready_manifests,
    render,
    run_settings,
    with_image,
)
from tests.support.go_programs import run_program

DEFAULT_CENSUS = {
    "ConfigMap": 2,
    "Job": 1,
    "NetworkPolicy": 1,
    "Pod": 1,
    "Role": 1,
    "RoleBinding": 1,
    "Secret": 2,
    "Service": 1,
    "ServiceAccount": 1,
    "StatefulSet": 1,
}
NAMESPACED = {
    *DEFAULT_CENSUS,
    "Deployment",
    "PodDisruptionBudget",
    "PodGroup",
    "PodMonitor",
    "PrometheusRule",
}
NO_ACCOUNT: Values = {"serviceAccount": {"create": False}}


@pytest.mark.parametrize(
    ("values", "difference"),
    [
        ({}, {}),
        (GROUPS, {"StatefulSet": 1}),
        ({"agent": {"masterSecret": "a", "workerSecret": "b"}}, {"Secret": -2}),
        (
            NO_ACCOUNT,
            {"ConfigMap": -1, "Pod": -1, "Role": -1, "RoleBinding": -1, "ServiceAccount": -1},
        ),
    ],
)
@pytest.mark.promise("default objects are complete")
def test_default_objects_are_complete(values: Values, difference: dict[str, int]) -> None:
    expected = Counter(DEFAULT_CENSUS)
    expected.update(difference)
    assert Counter(manifest["kind"] for manifest in render(values)) == +expected


@pytest.mark.parametrize("case", ready_cases())
@pytest.mark.promise("objects are namespaced and extend nothing")
def test_objects_are_namespaced_and_extend_nothing(case: str) -> None:
    """A CustomResourceDefinition, a webhook or a ClusterRole would need cluster-wide rights."""
    assert {manifest["kind"] for manifest in ready_manifests(case)} <= NAMESPACED


@pytest.mark.parametrize("values", [{}, GROUPS], ids=["default", "groups"])
def test_helm_3_and_helm_4_render_the_same(values: Values) -> None:
    """Helm 4 omits keys whose default is null; Helm 3 passes them to the templates."""
    assert render(values, helm="helm3") == render(values, helm="helm4")


# What dashboards, Headlamp, Argo CD and `kubectl` group by. Pods have fewer: another version of the
# chart must not replace them.
OF_PODS = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}
OF_OBJECTS = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
EVERY_KIND: Values = {
    **EVERY_POD,
    "gang": "Volcano",
    "metrics": {"enabled": True, "podMonitor": True, "rules": True, "dashboard": True},
    "podDisruptionBudget": {"enabled": True},
}


def test_every_object_has_the_labels_that_tools_group_by() -> None:
    manifests = render(EVERY_KIND)
    assert {item["kind"] for item in manifests} == NAMESPACED
    # The pod of `helm test` is the only pod without a controller.
    required = {**dict.fromkeys(NAMESPACED, OF_OBJECTS), "Pod": OF_PODS}
    missing = [required[item["kind"]] - item["metadata"]["labels"].keys() for item in manifests]
    assert [*map(sorted, missing)] == [[]] * len(manifests)


@pytest.mark.parametrize("kind", ["StatefulSet", "Job", "Deployment"])
def test_pods_have_the_labels_of_their_workload_that_tools_group_by(kind: str) -> None:
    workload = one(render(EVERY_KIND), kind)
    of_workload, of_pods = (
        {key: labelled["metadata"]["labels"][key] for key in OF_PODS}
        for labelled in (workload, workload["spec"]["template"])
    )
    assert of_pods == of_workload


def test_labels_of_the_user_are_on_all_objects_but_pods() -> None:
    """They start no other run."""
    labels = {"app.kubernetes.io/part-of": "sweep", "team": "vision"}
    plain = render(EVERY_KIND)
    labelled = render({**EVERY_KIND, "labels": labels})
    assert [item["metadata"]["labels"] for item in labelled] == [
        {**item["metadata"]["labels"], **({} if item["kind"] == "Pod" else labels)}
        for item in plain
    ]
    before, after = (
        [(item["metadata"]["name"], item.get("spec")) for item in manifests]
        for manifests in (plain, labelled)
    )
    assert after == before


def test_job_names_the_record_of_its_end() -> None:
    """Events, which say it as well, are deleted after an hour."""
    job = one(render(), "Job")["metadata"]["annotations"]
    assert run_settings(render())["record"] in job["kubernetes.io/description"]
    without_record = one(render(NO_ACCOUNT), "Job")["metadata"]["annotations"]
    assert "kubernetes.io/description" not in without_record


def test_job_makes_another_master_by_the_codes_of_a_lost_one() -> None:
    rules = one(render(), "Job")["spec"]["podFailurePolicy"]["rules"]
    (codes,) = (rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob")
    lost = sorted(exit_codes.LOST_MASTER)
    assert codes == {"containerName": "master", "operator": "NotIn", "values": lost}


def test_master_knows_its_workers() -> None:
    groups = run_settings(render(GROUPS))["groups"]
    assert [(group["stateful_set"], group["number"], group["slots"]) for group in groups] == [
        ("hvd-cpu", 3, 2),
        ("hvd-gpu", 2, 4),
    ]


def test_command_reaches_the_master_as_it_is() -> None:
    args = ["python", "train.py", "--name=$(HOME)", 'quote"d', "back\\slash", "a b", "é"]
    assert run_settings(render({"master": {"args": args}}))["args"] == args


@pytest.mark.parametrize(("component", "kind"), [("master", "Job"), ("worker", "StatefulSet")])
def test_selectors_of_the_master_select_the_pods_of_a_component(component: str, kind: str) -> None:
    """It lists the pods of its workers, and those of other masters, by these labels."""
    manifests = render(GROUPS)
    selector = run_settings(manifests)[f"{component}_selector"]
    assert f"app.kubernetes.io/component={component}" in selector
    selected = dict(term.split("=") for term in selector.split(","))
    owners = of_kind(manifests, kind)
    labels = [owner["spec"]["template"]["metadata"]["labels"] for owner in owners]
    assert labels == [{**pod_labels, **selected} for pod_labels in labels]


def test_master_writes_each_line_of_its_log_at_once() -> None:
    assert "-u" in main_container(render(), "Job")["command"]


def test_helm_test_pod_is_a_test_that_helm_deletes() -> None:
    """`helm uninstall` would leave the pod of a test that failed.

    It ends before Helm stops waiting, after 300 seconds by default.
    """
    tester = one(render(), "Pod")
    annotations = tester["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    policies = annotations["helm.sh/hook-delete-policy"].split(",")
    assert set(policies) == {"before-hook-creation", "hook-succeeded", "hook-failed"}
    # The pod has time to start before its program's own limit begins.
    assert selftest.TIMING.limit_seconds + 30 <= tester["spec"]["activeDeadlineSeconds"] < 300


def test_helm_test_pod_equals_the_master_whose_job_it_tests() -> None:
    manifests = render()
    job = one(manifests, "Job")
    (tester,) = one(manifests, "Pod")["spec"]["containers"]
    (master,) = pod_spec(job)["containers"]
    same = ("image", "securityContext", "volumeMounts")
    assert [tester[key] for key in same] == [master[key] for key in same]
    listed = {entry["name"]: entry.get("value") for entry in tester["env"]}
    assert listed["HVD_TESTED_JOB"] == job["metadata"]["name"]


def read_notes(values: Values) -> str:
    """Return what Helm says after an installation."""
    command = [str(tool("helm4")), "install", "hvd", str(CHART), "--dry-run=client", "-n", "team"]
    shown = run_program([*command, "--values", "-"], json.dumps(with_image(values))).stdout
    return shown[shown.index("NOTES:") :]


def test_notes_name_the_commands_that_follow_and_end_the_run() -> None:
    notes = read_notes({})
    job = one(render(), "Job")["metadata"]["name"]
    assert f"kubectl --namespace team logs --follow job/{job}\n" in notes
    assert "helm --namespace team uninstall hvd\n" in notes


@pytest.mark.parametrize("values", [{}, {"queueName": "team"}, NO_ACCOUNT])
def test_notes_offer_helm_test_where_it_has_a_pod(values: Values) -> None:
    offered = "helm --namespace team test hvd" in read_notes(values)
    assert offered is bool(of_kind(render(values), "Pod"))


@pytest.mark.parametrize(("values", "stay"), [({}, False), (NO_ACCOUNT, True)])
def test_notes_warn_of_workers_that_the_master_cannot_end(values: Values, *, stay: bool) -> None:
    assert ("The workers stay" in read_notes(values)) is stay


@pytest.mark.parametrize(
    ("worker", "counts"),
    [
        ({"number": 1, "slots": 2}, ["2", "1", "0"]),
        ({"number": 2, "slots": 3, "spares": 1}, ["6", "2", "1"]),
    ],
)
def test_notes_count_ranks_workers_and_spares(worker: Values, counts: list[str]) -> None:
    line = read_notes({"worker": worker}).splitlines()[1]
    assert re.findall(r"\d+", line) == counts


@pytest.mark.parametrize("values", [EVERY_POD, {**EVERY_POD, "fullnameOverride": "other"}, {}])
def test_notes_say_how_tensorboard_is_reached(values: Values) -> None:
    ways = re.findall(
        r"^  kubectl --namespace team port-forward (.+)$", read_notes(values), re.MULTILINE
    )
    names = [deployment["metadata"]["name"] for deployment in of_kind(render(values), "Deployment")]
    assert ways == [f"service/{name} 6006" for name in names]


TO_OUTPUT: Values = {"worker": {"env": [{"name": "OUTPUT_PATH", "value": "/output"}]}}
ON_VOLUME: Values = {
    "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": "output"}}],
    "volumeMounts": [{"name": "output", "mountPath": "/output"}],
}


@pytest.mark.parametrize(
    ("values", "command", "is_lost"),
    [
        ({}, None, False),
        (TO_OUTPUT, "cp hvd-worker-0:/output results", True),
        ({**TO_OUTPUT, **ON_VOLUME}, "cp hvd-worker-0:/output results", False),
    ],
)
def test_notes_say_how_to_get_the_results(
    values: Values, command: str | None, *, is_lost: bool
) -> None:
    notes = read_notes(values)
    shown = re.findall(r"^  kubectl --namespace team (.+ results)$", notes, re.MULTILINE)
    assert shown == [command] * bool(command)
    assert ("they are on no volume" in notes) is is_lost


def programs_of(spec: Manifest) -> list[Manifest]:
    """Return the containers of a pod that unpack the programs."""
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    python = ["python3", "-I", "-S", "-c"]
    return [container for container in containers if container["command"][:4] == python]


def test_these_containers_run_programs_of_the_archive() -> None:
    """The other has its script in the pod's template, because its image may lack Python."""
    manifests = render(EVERY_POD)
    specs = pod_specs(manifests).values()
    unpacking = {container["name"] for spec in specs for container in programs_of(spec)}
    assert unpacking == {"master", "worker"}


def test_container_of_another_image_has_its_script() -> None:
    containers = containers_of(render(EVERY_POD))
    scripts = {container["name"]: container["command"][:4] for container in containers}
    text = (CHART / "files" / "hvd_pods" / "worker/stage.sh").read_text().replace("$", "$$")
    assert scripts["staging"] == ["sh", "-c", text, "stage.sh"]


@pytest.mark.parametrize("kind", ["StatefulSet", "Job", "Pod"])
@pytest.mark.promise("pods unpack the archive that their template names")
def test_pods_unpack_the_archive_that_their_template_names(kind: str) -> None:
    """Kubernetes would replace a variable's name in parentheses after one dollar sign."""
    manifests = render(EVERY_POD)
    (archive,) = (item for item in of_kind(manifests, "ConfigMap") if "binaryData" in item)
    content = base64.b64decode(archive["binaryData"]["programs.tgz"])
    assert archive["immutable"]
    names = programs.read(content)
    text = (CHART / "files" / "unpack.py").read_text().replace("$", "$$")
    (spec,) = (spec for name, spec in pod_specs(manifests).items() if name.startswith(f"{kind} "))
    (container,) = programs_of(spec)
    command = container["command"]
    assert command[4:6] == [text, hashlib.sha256(content).hexdigest()]
    assert command[-1].removeprefix("/horovod/bin/hvd_pods/") in names
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts["/horovod/archive"] == "archive"
    assert mounts["/horovod/bin/hvd_pods"] == "programs"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["archive"]["configMap"] == {"name": archive["metadata"]["name"]}
    assert volumes["programs"]["emptyDir"]["medium"] == "Memory"


# Texts that YAML, JSON, a terminal or Windows write in more than one way.
TEXTS = {
    "a.py": "print('<&>')\n\n  \n",
    "b.py": "\n\n\tindented\n # not\r\nended",
    "c.py": " \u2028\x85\ufeff\x07 é€ ~ null",
    "d.py": "---\n...\nno: yes",
    "e.py": "",
    "f.py": "1e3",
    "G.py": "%s $(A) {{ .Values }}\n" * 40,
    "h.py": "\x7f",
    # What ends the last one is easily lost.
    "z.py": "ended\n\n",
}


@pytest.mark.parametrize("kinds", [("files",), ("archive",), ("files", "archive")], ids=str)
@pytest.mark.promise("pod of the master names the sha256 of the code")
def test_pod_of_the_master_names_the_sha256_of_the_code(kinds: tuple[str, ...]) -> None:
    """Whoever may change ConfigMaps, but no Jobs, cannot have other code run."""
    packed = base64.encodebytes(gzip.compress(bytes(range(256)) * 99)).decode()
    all_code: Values = {"files": TEXTS, "archive": packed}
    code = {kind: all_code[kind] for kind in kinds}
    manifests = render({"code": code, "master": {"args": ["a"]}})
    settings = run_settings(manifests)
    by_name = {item["metadata"]["name"]: item for item in of_kind(manifests, "ConfigMap")}
    config_map = by_name[settings["code"]["config_map"]]
    texts = config_map.get("data", {}).items()
    binaries = config_map.get("binaryData", {}).items()
    content = {key: text.encode() for key, text in texts}
    content |= {key: base64.b64decode(encoded) for key, encoded in binaries}
    assert settings["code"]["sha256"] == code_archive.digest(content)
    files = {key: text.encode() for key, text in TEXTS.items() if "files" in kinds}
    assert {key: content[key] for key in files} == files
    assert ("a.py" in content) is ("files" in kinds)
    assert ("archive.tgz" in content) is ("archive" in kinds)


def test_objects_fit_into_the_annotation_of_kubectl_apply() -> None:
    """Plain `kubectl apply` repeats an object in an annotation; all of them have 256 KiB."""
    sizes = {item["metadata"]["name"]: len(json.dumps(item)) for item in render({})}
    assert max(sizes.values()) < 250 * 1024, sizes


def test_lease_of_a_session_is_on_the_job() -> None:
    """Only there: another session of the same run continues with its pods."""
    session = {"id": "1a2b", "leaseSeconds": 600}
    made = render({"session": session})
    notes = one(made, "Job")["metadata"]["annotations"]
    assert notes["hvdchart/session"] == "1a2b"
    assert notes["hvdchart/lease-seconds"] == "600"
    # Nobody would renew the lease of a run that no command keeps.
    plain = one(render({"session": {"leaseSeconds": 600}}), "Job")["metadata"]["annotations"]
    assert not {"hvdchart/session", "hvdchart/lease-seconds"} & set(plain)
    assert one(made, "Job")["metadata"]["name"] == one(render(), "Job")["metadata"]["name"]
