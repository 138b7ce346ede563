"""A real API server accepts the rendered manifests: names, fields, types, Pod Security.

They are applied on the server, as Helm 4 does: that refuses a list that has a name twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chart.render import Values, ready_cases, render
from tests.chart.test_data import DATA, STAGING
from tests.chart.test_monitoring import OUTPUT
from tests.chart.test_objects import GROUPS
from tests.chart.test_pods import ADDITIONS
from tests.e2e.cluster import Namespace

CASES: dict[str, Values] = {
    "groups": GROUPS,
    "foreign UID": {"podSecurityContext": {"runAsUser": None}},
    "scheduling": {
        "worker": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "runtimeClassName": "nvidia",
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "podAnnotations": {"x": "y"},
        },
        "master": {"activeDeadlineSeconds": 60, "podLabels": {"x": "y"}},
        "cleanup": "Always",
        "priorityClassName": "system-cluster-critical",
        "schedulerName": "mine",
        "queueName": "team",
        "podDisruptionBudget": {"enabled": True},
    },
    "network": {
        "hostNetwork": True,
        "hostPID": True,
        "network": {"ipFamilyPolicy": "PreferDualStack", "interface": "ib0"},
        "podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "worker": {"capabilities": ["IPC_LOCK"]},
        "serviceMesh": "Disabled",
    },
    "watching": {
        **OUTPUT,
        "horovod": {"timeline": True, "autotune": True, "cycleTimeMs": 3},
        "tensorboard": {"enabled": True},
        "metrics": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "serviceMesh": "Hold",
    },
    "staging": {**DATA, "staging": STAGING, "results": {"command": ["true"], "path": "/data"}},
    "additions to pods": ADDITIONS,
    "overridden variables": {
        "worker": {"env": [{"name": "I_MPI_PIN", "value": "1"}, {"name": "A", "value": "1"}]},
        # Names that YAML reads as something else than text.
        "workerGroups": [{"name": "no", "env": [{"name": "A", "value": "2"}]}, {"name": "true"}],
        "master": {"env": [{"name": "HOME", "value": "/home"}]},
    },
    **ready_cases(),
}


@pytest.mark.parametrize("case", CASES)
def test_api_server_accepts_every_object(case: str, kubeconfig: Path) -> None:
    server = Namespace("default", kubeconfig, "")
    manifests = render(CASES[case])
    for manifest in manifests:
        manifest["metadata"].pop("namespace", None)
        if manifest["kind"] == "Pod":
            # Its own service account does not exist, because a dry run creates nothing.
            manifest["spec"]["serviceAccountName"] = "default"
    answer = server.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "--filename",
        "-",
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}),
    )
    assert answer.count("server dry run") == answer.count("\n") == len(manifests)
