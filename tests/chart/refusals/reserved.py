"""Values that contradict each other about names that the chart uses itself."""

from __future__ import annotations

from tests.chart.refusals.contradiction import AT_DATA, Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"worker": {"env": [{"name": "HVD_SLOTS", "value": "4"}]}},
        ["worker.env", "HVD_SLOTS"],
        {"worker": {"env": [{"name": "SLOTS", "value": "4"}]}},
    ),
    Contradiction(
        {"staging": {"env": [{"name": "STAGING_KEY", "value": "x"}]}},
        ["staging.env", "STAGING_KEY"],
        {"staging": {"env": [{"name": "KEY", "value": "x"}]}},
    ),
    Contradiction(
        {"volumes": [{"name": "programs", "emptyDir": {}}]},
        ["volumes", '"programs"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    Contradiction(
        {"volumes": [{"name": "archive", "emptyDir": {}}]},
        ["volumes", '"archive"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    Contradiction(
        {"volumes": [{"name": "tmp", "emptyDir": {}}]},
        ["volumes", '"tmp"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    Contradiction(
        {"volumes": [{"name": "shm", "emptyDir": {}}]},
        ["volumes", '"shm"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    Contradiction(
        {"volumes": [{"name": "keys", "emptyDir": {}}]},
        ["volumes", '"keys"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    *(
        Contradiction(
            {"volumeMounts": [{"name": "x", "mountPath": path}]},
            ["volumeMounts", path],
            {"volumeMounts": AT_DATA},
        )
        for path in ("horovod/keys", "../horovod/keys", "./horovod/", "//horovod/keys")
    ),
    Contradiction(
        {"volumeMounts": [{"name": "x", "mountPath": "/data/..//horovod/./keys/"}]},
        ["volumeMounts", "/data/..//horovod/./keys/"],
        {
            "volumes": [{"name": "x", "emptyDir": {}}],
            "volumeMounts": [{"name": "x", "mountPath": "/data/keys"}],
        },
    ),
    Contradiction(
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/archive"}]},
        ["volumeMounts", "/horovod/archive"],
        {"volumeMounts": AT_DATA},
    ),
    Contradiction(
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/bin/hvd_pods/rank"}]},
        ["volumeMounts", "/horovod/bin/hvd_pods/rank"],
        {"volumeMounts": AT_DATA},
    ),
    Contradiction(
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/keys"}]},
        ["volumeMounts", "/horovod/keys"],
        {"volumeMounts": AT_DATA},
    ),
    Contradiction(
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/"}]},
        ["volumeMounts", "/horovod/"],
        {"volumeMounts": AT_DATA},
    ),
    *(
        Contradiction(
            {"volumeMounts": [{"name": "x", "mountPath": path}]},
            ["volumeMounts", path],
            {"volumeMounts": AT_DATA},
        )
        for path in ("/etc", "/data/../proc/")
    ),
    Contradiction(
        {"podLabels": {"app.kubernetes.io/component": "x"}},
        ["podLabels", "app.kubernetes.io/component"],
        {"podLabels": {"app.kubernetes.io/component": None}},
    ),
    *(
        Contradiction(
            {"workerGroups": [{"name": "a", key: entries}]},
            [f"workerGroups[a].{key}", refused],
            {"workerGroups": [{"name": "a"}]},
        )
        for key, entries, refused in (
            ("env", [{"name": "HVD_SLOTS", "value": "4"}], "HVD_SLOTS"),
            ("volumes", [{"name": "tmp", "emptyDir": {}}], '"tmp"'),
            ("volumeMounts", [{"name": "x", "mountPath": "/horovod/keys"}], "/horovod/keys"),
            ("podLabels", {"hvdchart/revision": "x"}, "hvdchart/revision"),
        )
    ),
    Contradiction(
        {"labels": {"app.kubernetes.io/managed-by": "x"}},
        ["labels", "app.kubernetes.io/managed-by"],
        {"labels": {"app.kubernetes.io/managed-by": None}},
    ),
    Contradiction(
        {"labels": {"hvdchart/run": "x"}},
        ["labels", "hvdchart/run"],
        {"labels": {"hvdchart/run": None}},
    ),
    Contradiction(
        {"podLabels": {"hvdchart/revision": "x"}},
        ["podLabels", "hvdchart/revision"],
        {"podLabels": {"hvdchart/revision": None}},
    ),
    Contradiction(
        {"worker": {"extraContainers": [{"name": "worker"}]}},
        ["worker.extraContainers", '"worker"'],
        {"worker": {"extraContainers": [{"name": "x"}]}},
    ),
    Contradiction(
        {"worker": {"initContainers": [{"name": "x"}], "extraContainers": [{"name": "x"}]}},
        ["worker.extraContainers", 'another container named "x"'],
        {"worker": {"extraContainers": [{"name": "y"}]}},
    ),
]
