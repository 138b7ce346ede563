"""A real API server accepts the rendered manifests, and Pod Security as `doctor` says it does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdchart.doctor.pod_security import BASELINE, ENFORCE, LEVELS, RESTRICTED, policy_version
from hvdchart.doctor.security_needs import security_needs
from hvdchart.spec.values_schema import default_values
from hvdchart.values.merge import merge_values
from tests.chart.cases import CASES, EVERY_POD
from tests.chart.namespaces import empty_namespace
from tests.chart.render import Manifest, Values, pod_templates, render, with_image
from tests.chart.trial import assert_accepted
from tests.support.namespace import Namespace
from tests.support.security_cases import SECURITY

# What the oldest releases of Kubernetes lack, and the chart passes on.
NEWER: dict[str, Values] = {
    "user namespace": {"worker": {"podSpec": {"hostUsers": False}}},
    "resources of the pod": {"worker": {"podSpec": {"resources": {"limits": {"memory": "4Gi"}}}}},
    "volume of an image": {
        "volumes": [{"name": "set", "image": {"reference": "a/b:1", "pullPolicy": "IfNotPresent"}}],
        "volumeMounts": [{"name": "set", "mountPath": "/data", "readOnly": True}],
    },
}
# Pods are judged alone: the objects that they name are not there, and some need an admission of
# their own.
_NAMES = ("priorityClassName", "schedulingGroup", "serviceAccountName")
JUDGED: dict[str, Values] = {
    **CASES,
    **NEWER,
    "every pod": EVERY_POD,
    **{case: values for case, (values, _) in SECURITY.items()},
}


@pytest.mark.parametrize("case", [*CASES, *NEWER])
def test_api_server_accepts_every_object(case: str, kubeconfig: Path) -> None:
    assert_accepted(Namespace("default", kubeconfig, ""), render({**CASES, **NEWER}[case]))


@pytest.fixture(scope="module")
def enforcing(kubeconfig: Path) -> Iterator[dict[str, Namespace]]:
    """A namespace for each level of Pod Security that refuses pods, which it enforces."""
    with empty_namespace(kubeconfig) as restricted, empty_namespace(kubeconfig) as baseline:
        made = {RESTRICTED: restricted, BASELINE: baseline}
        for level, namespace in made.items():
            namespace.kubectl("label", "namespace", namespace.name, f"{ENFORCE}={level}")
            # Without the service account, pods are refused.
            namespace.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=180s")
        yield made


def pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return a pod for each pod template of the manifests."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": re.sub("[^a-z0-9]+", "-", name.lower()),
                **{
                    key: template.get("metadata", {}).get(key, {})
                    for key in ("annotations", "labels")
                },
            },
            "spec": {key: value for key, value in template["spec"].items() if key not in _NAMES},
        }
        for name, template in pod_templates(manifests).items()
    ]


def is_admitted(namespace: Namespace, made: list[Manifest]) -> bool:
    """Create pods on trial. Return whether Pod Security admits all of them; nothing else fails."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    command = namespace.client.command("create", "--dry-run=server", "--filename", "-")
    done = namespace.call(*command, input=text)
    refusals = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    assert [line for line in refusals if "violates PodSecurity" not in line] == []
    assert (done.returncode == 0) is (refusals == [])
    return done.returncode == 0


@pytest.mark.parametrize("case", JUDGED)
def test_pod_security_admits_the_pods_at_the_level_that_doctor_names(
    case: str, enforcing: dict[str, Namespace]
) -> None:
    answer = json.loads(enforcing[RESTRICTED].kubectl("version", "--output", "json"))
    version = policy_version({}, answer["serverVersion"]["gitVersion"])
    values = merge_values(default_values(), with_image(JUDGED[case]))
    needed = max([RESTRICTED, *security_needs(values, version).values()], key=LEVELS.index)
    made = pods(render(JUDGED[case]))
    admitted = {level for level, namespace in enforcing.items() if is_admitted(namespace, made)}
    assert admitted == {level for level in enforcing if LEVELS.index(level) >= LEVELS.index(needed)}
