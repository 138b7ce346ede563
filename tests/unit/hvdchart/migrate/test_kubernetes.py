"""Parts of pods that the Kubernetes API would refuse are found before Helm renders them."""

from __future__ import annotations

from typing import Any

import pytest

from devtools.checks import kube_schemas
from hvdchart.errors import SpecError
from hvdchart.migrate.kubernetes import did_you_mean, find_problem, value_problem
from hvdchart.spec.yaml_tree import parse
from tests.unit.hvdchart.migrate.old_files import migrate_job, migrate_old


def test_description_of_pods_is_that_of_the_newest_release() -> None:
    newest = kube_schemas.load()[kube_schemas.RELEASES[-1]]
    assert kube_schemas.PODS_FILE.read_text() == kube_schemas.pods(newest)


@pytest.mark.parametrize(
    ("new", "value", "path"),
    [
        ("volumes", [{"name": "a", "nfs": {"server": "s", "path": "/"}, "hostPath": {"path": "/"}}],
         "[0]"),
        ("volumes", [{"name": "A b", "emptyDir": {}}], "[0].name"),
        ("volumes", [{"name": "a", "emptyDir": {"medium": "Disk"}}], "[0].emptyDir.medium"),
        ("volumes", [{"name": "a", "hostPath": {"path": "/a/../b"}}], "[0].hostPath.path"),
        ("volumes", [{"name": "a", "persistentVolumeClaim": {"claimName": ""}}],
         "[0].persistentVolumeClaim.claimName"),
        ("volumeMounts", [{"name": "a", "mountPath": ""}], "[0].mountPath"),
        ("volumeMounts", [{"name": "a", "mountPath": "/a", "subPath": "/b"}], "[0].subPath"),
        ("worker.env", [{"name": "A", "value": 1}], "[0].value"),
        ("worker.env", [{"name": "A=B", "value": "1"}], "[0].name"),
        ("worker.env", [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}],
         "[0]"),
        ("worker.resources", {"limits": {"cpu": "1x"}}, "limits.cpu"),
        ("worker.resources", {"limits": {"cpu": -1}}, "limits.cpu"),
        ("worker.resources", {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}, "requests.cpu"),
        ("worker.resources", {"requests": {"nvidia.com/gpu": 1}}, "requests.nvidia.com/gpu"),
        ("worker.nodeSelector", {"a b": "c"}, ""),
        ("worker.nodeSelector", {"a": "b c"}, "a"),
        ("worker.tolerations", [{"effect": "NoSchedul", "operator": "Exists"}], "[0].effect"),
        ("worker.tolerations", [{"operator": "Exists", "value": "a"}], "[0].value"),
        ("worker.tolerations", [{"value": "a"}], "[0]"),
        ("worker.affinity", {"nodeAffinty": {}}, "nodeAffinty"),
        ("master.podLabels", {"a": "b/c"}, "a"),
        ("podSecurityContext.runAsUser", -1, ""),
        ("podSecurityContext", {"runAsUser": "root"}, "runAsUser"),
        ("priorityClassName", "High", ""),
        ("image.repository", "Team Image", ""),
        ("image.tag", "a b", ""),
        ("imagePullSecrets", ["a"], "[0]"),
        ("shm.sizeLimit", "16 GB", ""),
    ],
)  # fmt: skip
def test_value_that_the_api_refuses(new: str, value: Any, path: str) -> None:
    problem = value_problem(new.split("."), value)
    assert problem is not None
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.path)
    assert text.removeprefix(".") == path


@pytest.mark.parametrize(
    ("new", "value"),
    [
        ("volumes", [{"name": "a"}, {"name": "b", "configMap": {"name": "x", "items": []}}]),
        ("worker.env", [{"name": "a.b-c", "value": ""}]),
        ("worker.resources", {"limits": {"cpu": 1.5, "memory": "1Gi"}, "requests": {"cpu": ".5"}}),
        ("worker.tolerations", [{"operator": "Exists"}, {"key": "a", "value": "b"}]),
        ("worker.nodeSelector", {"node.kubernetes.io/instance-type": "p4d.24xlarge", "a": ""}),
        ("image.repository", "registry:5000/a/b"),
        ("metrics.enabled", "anything: no part of a pod"),
    ],
)
def test_value_that_the_api_accepts(new: str, value: Any) -> None:
    assert value_problem(new.split("."), value) is None


def affinity(kind: str, weight: int) -> dict[str, Any]:
    """An affinity with a preference of this weight."""
    term = {"nodeAffinity": ("preference", {"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
            "podAffinity": ("podAffinityTerm", {"topologyKey": "zone"})}[kind]  # fmt: skip
    preferred = [{"weight": weight, term[0]: term[1]}]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def spread(skew: int, operator: str = "Exists") -> list[dict[str, Any]]:
    """A constraint on the spread of pods that a label selects."""
    selector = {"matchExpressions": [{"key": "a", "operator": operator}]}
    return [{"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": selector}]  # fmt: skip


def source(**sources: Any) -> list[dict[str, Any]]:
    """A variable whose value comes from the cluster."""
    return [{"name": "A", "valueFrom": sources}]


KEY = {"name": "s", "key": "k"}


@pytest.mark.parametrize(
    ("new", "last", "first_refused"),
    [
        ("volumes", [{"name": "a" * 63}], [{"name": "a" * 64}]),
        ("volumes", [{"name": "a", "nfs": {"server": "s", "path": "/"}}],
         [{"name": "a", "nfs": {"server": "", "path": "/"}}]),
        ("volumes", [{"name": "a", "csi": {"driver": "d"}}],
         [{"name": "a", "csi": {"driver": ""}}]),
        ("volumeMounts", [{"name": "a", "mountPath": "/"}], [{"name": "a", "mountPath": ""}]),
        ("priorityClassName", "a" * 253, "a" * 254),
        ("image.tag", "a" * 128, "a" * 129),
        ("worker.nodeSelector", {"a": "b" * 63}, {"a": "b" * 64}),
        ("podSecurityContext.runAsUser", 2**31 - 1, 2**31),
        ("podSecurityContext.runAsUser", 0, -1),
        ("worker.affinity", affinity("nodeAffinity", 1), affinity("nodeAffinity", 0)),
        ("worker.affinity", affinity("nodeAffinity", 100), affinity("nodeAffinity", 101)),
        ("worker.affinity", affinity("podAffinity", 1), affinity("podAffinity", 0)),
        ("worker.affinity", affinity("podAffinity", 100), affinity("podAffinity", 101)),
        ("worker.topologySpreadConstraints", spread(1), spread(0)),
        ("worker.topologySpreadConstraints", spread(1, "DoesNotExist"), spread(1, "Gt")),
        ("worker.env", source(secretKeyRef=KEY), source()),
        ("worker.env", source(secretKeyRef=KEY), source(secretKeyRef=KEY, configMapKeyRef=KEY)),
        ("worker.env", source(configMapKeyRef=KEY), source(configMapKeyRef={**KEY, "key": ""})),
        ("worker.env", [{"name": "A", "value": ""}], [{"name": "", "value": ""}]),
        ("worker.tolerations", [{"operator": "Exists", "key": "", "value": ""}],
         [{"operator": "Exists", "key": "", "value": "a"}]),
        ("worker.resources", {"limits": {"cpu": 0}}, {"limits": {"cpu": -1}}),
        ("worker.resources", {"limits": {"cpu": 1}, "requests": {"cpu": "1000m"}},
         {"limits": {"cpu": 1}, "requests": {"cpu": "1001m"}}),
        ("worker.resources", {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 2}},
         {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}),
    ],
)  # fmt: skip
def test_value_at_a_limit_of_the_api_is_accepted_and_the_next_one_refused(
    new: str, last: Any, first_refused: Any
) -> None:
    assert value_problem(new.split("."), last) is None
    assert value_problem(new.split("."), first_refused) is not None


def test_long_values_are_cut_in_messages() -> None:
    problem = value_problem(["worker", "nodeSelector"], {"a": ["x" * 200]})
    assert problem is not None
    assert problem.problem == f'Kubernetes does not accept it: ["{"x" * 155}...'


def test_few_keys_are_all_named_where_none_is_meant() -> None:
    assert did_you_mean("zoom", "abcdefgh") == "one of a, b, c, d, e, f, g, h"
    assert did_you_mean("zoom", "abcdefghi") == "a key of Kubernetes"


def test_misspelt_key_is_answered_with_the_one_that_is_meant() -> None:
    problem = find_problem("PodTemplateSpec", {"spec": {"containers": [
        {"name": "a", "imagePullPolcy": "Always"}]}})  # fmt: skip
    assert problem is not None
    assert problem.path == ("spec", "containers", 0, "imagePullPolcy")
    assert problem.problem == "Kubernetes has no such key"
    assert problem.expected == "imagePullPolicy, if that is meant"
    unlike = find_problem("Capabilities", {"give": []})
    assert unlike is not None
    assert unlike.expected == "one of add, drop"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"worker_container__volumeMount": []},
         "containers[0].volumeMount: Kubernetes has no such key; expected volumeMounts, if that"),
        ({"worker_pod__nodeSelektor": {"a": "b"}},
         "spec.nodeSelektor: Kubernetes has no such key; expected nodeSelector, if that is meant"),
        ({"worker__replica": 4}, "Worker.replica: no such key; expected replicas, if that is"),
        ({"spec__slotPerWorker": 4}, "spec.slotPerWorker: no such key; expected slotsPerWorker"),
        ({"spec__runPolicy": {"cleanPodPolcy": "All"}},
         "spec.runPolicy.cleanPodPolcy: no such key; expected cleanPodPolicy, if that is meant"),
        ({"launcher_container__env": [{"name": "A", "value": True}]},
         "env[0].value: Kubernetes does not accept it: true is not of type \"string\""),
        ({"spec__runPolicy": {"backoffLimit": 1}, "spec__backoffLimit": 2},
         "the chart's master.backoffLimit is 1 from another value of the file, 2 from this one"),
    ],
)  # fmt: skip
def test_misspelt_key_of_a_job_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_job(**fields)
    assert message in str(error.value)


def test_empty_texts_set_nothing() -> None:
    migration = migrate_job(
        worker_pod__priorityClassName="", worker_pod__schedulerName="",
        worker_container__imagePullPolicy="", spec__runPolicy={"cleanPodPolicy": ""},
        launcher_container__image="",
    )  # fmt: skip
    for key in ("priorityClassName", "schedulerName", "cleanup"):
        assert key not in migration.values
    assert migration.values["image"] == {"repository": "team/image", "tag": "1"}
    old = migrate_old(fullnameOverride="")
    assert "fullnameOverride" not in old.values


def test_entry_for_the_whole_input_is_a_defect() -> None:
    from hvdchart.migrate.ledger import Ledger
    from hvdchart.values.schema import values_schema

    ledger = Ledger(parse(b"a: 1", "a"), values_schema())
    with pytest.raises(ValueError, match="an entry for the whole input"):
        ledger.drop((), "")
    with pytest.raises(ValueError, match="an entry for the whole input"):
        ledger.change((), ("worker",))


def test_value_that_a_rule_forgets_ends_the_migration() -> None:
    from hvdchart.migrate.ledger import Ledger
    from hvdchart.values.schema import values_schema

    ledger = Ledger(parse(b"a: 1", "a"), values_schema())
    ledger.change(("a",), ("worker", "env"))
    with pytest.raises(SpecError, match=r"migrate would lose it on the way to worker\.env"):
        ledger.close("a test")
