"""The chart refuses values that contradict each other, and names each key and the remedy."""

from __future__ import annotations

import json
import re

import pytest

from hvdchart.chart_files import read_data
from tests.chart.render import Values, helm_template, refusal

# The message of horovod.refuse: what is refused may begin with the group that it is about.
MESSAGE = re.compile(
    r"execution error at \([^)]*\): "
    r'(?P<what>(?:(?:worker\.env of )?group "[^"]*": )?.*?): (?P<rest>.*)'
)
TAGS = {"name": "HVD_TAG_OUTPUT", "value": "1"}
# Values, and what the message names as refused: both keys, and what is in them.
CONTRADICTIONS: list[tuple[Values, list[str]]] = [
    (
        {
            "worker": {
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        },
        ['group "worker": env', "NVIDIA_VISIBLE_DEVICES", 'resources.limits["nvidia.com/gpu"]'],
    ),
    ({"workerGroups": [{"name": "a"}, {"name": "a"}]}, ["workerGroups", '"a"']),
    ({"workerGroups": [{"name": "master"}]}, ["workerGroups[].name", '"master"']),
    (
        {
            "fullnameOverride": "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr",
            "workerGroups": [{"name": "gggggggggggg"}],
        },
        ["StatefulSet name", "53"],
    ),
    ({"nameOverride": "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"}, ["nameOverride", "48"]),
    (
        {"workerGroups": [{"name": "a", "number": 9000}, {"name": "b", "number": 2000}]},
        ["number and spares of worker and workerGroups", "11000"],
    ),
    (
        {
            "worker": {"spares": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ['group "worker": spares', "master.args", '"hvd-worker-0"'],
    ),
    ({"worker": {"number": 2, "minimum": 3}}, ['group "worker": minimum', "number"]),
    (
        {
            "worker": {"minimum": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ['group "worker": minimum', "master.args", '"hvd-worker-0"'],
    ),
    ({"launch": {"mode": "custom"}}, ["launch.mode", "master.args"]),
    ({"launch": {"allowIdleWorkers": True}}, ["launch.allowIdleWorkers", "launch.mode"]),
    ({"launch": {"mode": "direct", "framework": "mpi"}}, ["launch.framework", "launch.mode"]),
    ({"launch": {"mode": "direct", "options": ["--other"]}}, ["launch.options", "launch.mode"]),
    (
        {"launch": {"mode": "custom", "options": ["-v"]}, "master": {"args": ["mpirun"]}},
        ["launch.mode", "launch.options", "launch.binding"],
    ),
    ({"master": {"args": ["/opt/bin/horovodrun", "-np", "2", "a"]}}, ["master.args", "horovodrun"]),
    ({"master": {"args": ["time", "$(LAUNCH)"]}}, ["master.args", "launch.mode"]),
    ({"launch": {"binding": {"to": "core"}}}, ["launch.binding.to", "launch.binding.coresPerRank"]),
    (
        {"launch": {"binding": {"to": "socket", "ranksPerSocket": 1, "coresPerRank": 2}}},
        ["launch.binding.coresPerRank", "launch.binding.to"],
    ),
    (
        {"launch": {"binding": {"ranksPerSocket": 1}}},
        ["launch.binding.ranksPerSocket", "launch.binding.to"],
    ),
    ({"master": {"ttlSecondsAfterFinished": 60}}, ["master.ttlSecondsAfterFinished", "cleanup"]),
    (
        {"cleanup": "Always", "serviceAccount": {"create": False}},
        ["cleanup", "serviceAccount.create"],
    ),
    ({"podSecurityContext": {"runAsUser": 0}}, ["podSecurityContext.runAsUser", "runAsNonRoot"]),
    (
        {"worker": {"spread": "Required", "affinity": {"podAntiAffinity": {}}}},
        ['group "worker": spread', "affinity.podAntiAffinity"],
    ),
    (
        {"workerGroups": [{"name": "rdma", "capabilities": ["IPC_LOCK"]}]},
        ['group "rdma": capabilities', "podSecurityContext.runAsUser"],
    ),
    ({"gang": "Kubernetes"}, ["gang", "PodGroup of scheduling.k8s.io/v1beta1"]),
    ({"gang": "Volcano", "gangTopologyKey": "rack"}, ["gangTopologyKey", "gang"]),
    (
        {"networkPolicy": {"enabled": True}, "hostNetwork": True},
        ["networkPolicy.enabled", "hostNetwork"],
    ),
    ({"serviceMesh": "Ambient", "hostNetwork": True}, ["serviceMesh", "hostNetwork"]),
    ({"hostNetwork": True, "agent": {"port": 6443}}, ["hostNetwork", "agent.port"]),
    ({"hostNetwork": True, "agent": {"port": 32000}}, ["hostNetwork", "agent.port"]),
    ({"metrics": {"enabled": True}, "agent": {"port": 9400}}, ["metrics.enabled", "agent.port"]),
    ({"agent": {"masterSecret": "a"}}, ["agent.masterSecret", "agent.workerSecret"]),
    ({"agent": {"workerSecret": "b"}}, ["agent.masterSecret", "agent.workerSecret"]),
    (
        {"agent": {"masterSecret": "a", "workerSecret": "a"}},
        ["agent.masterSecret", "agent.workerSecret"],
    ),
    ({"image": {"repository": ""}}, ["image.repository", 'group "worker"']),
    (
        {"image": {"repository": ""}, "worker": {"image": {"repository": "a"}}},
        ["image.repository", "master"],
    ),
    (
        {
            "image": {"repository": ""},
            "worker": {"image": {"repository": "a"}},
            "master": {"image": {"repository": "a"}},
            "tensorboard": {"enabled": True},
        },
        ["image.repository", "tensorboard"],
    ),
    ({"worker": {"podSpec": {"nodeSelector": {}}}}, ["worker.podSpec", "nodeSelector"]),
    (
        {"workerGroups": [{"name": "a", "podSpec": {"containers": []}}]},
        ["workerGroups[a].podSpec", "containers"],
    ),
    (
        {"master": {"podSpec": {"containers": []}}},
        ["master.podSpec", "containers"],
    ),
    ({"worker": {"podSpec": {"subdomain": "x"}}}, ["worker.podSpec", "subdomain"]),
    (
        {"hostNetwork": True, "worker": {"podSpec": {"dnsPolicy": "Default"}}},
        ["worker.podSpec", "dnsPolicy"],
    ),
    ({"master": {"container": {"command": ["x"]}}}, ["master.container", "command"]),
    ({"worker": {"extraContainers": [{"name": "worker"}]}}, ["worker.extraContainers", '"worker"']),
    ({"master": {"initContainers": [{"name": "results"}]}}, ["master.initContainers", '"results"']),
    (
        {"worker": {"initContainers": [{"name": "x"}], "extraContainers": [{"name": "x"}]}},
        ["worker.extraContainers", 'another container named "x"'],
    ),
    (
        {"podLabels": {"app.kubernetes.io/component": "x"}},
        ["podLabels", "app.kubernetes.io/component"],
    ),
    ({"labels": {"app.kubernetes.io/managed-by": "x"}}, ["labels", "app.kubernetes.io/managed-by"]),
    ({"labels": {"hvdchart/run": "x"}}, ["labels", "hvdchart/run"]),
    ({"podLabels": {"hvdchart/revision": "x"}}, ["podLabels", "hvdchart/revision"]),
    ({"volumes": [{"name": "programs", "emptyDir": {}}]}, ["volumes", '"programs"']),
    ({"volumes": [{"name": "archive", "emptyDir": {}}]}, ["volumes", '"archive"']),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/archive"}]},
        ["volumeMounts", "/horovod/archive"],
    ),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/bin/hvd_pods/rank"}]},
        ["volumeMounts", "/horovod/bin/hvd_pods/rank"],
    ),
    ({"volumes": [{"name": "keys", "emptyDir": {}}]}, ["volumes", '"keys"']),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/keys"}]},
        ["volumeMounts", "/horovod/keys"],
    ),
    ({"volumeMounts": [{"name": "x", "mountPath": "/horovod/"}]}, ["volumeMounts", "/horovod/"]),
    ({"worker": {"env": [{"name": "HVD_SLOTS", "value": "4"}]}}, ["worker.env", "HVD_SLOTS"]),
    ({"staging": {"env": [{"name": "STAGING_KEY", "value": "x"}]}}, ["staging.env", "STAGING_KEY"]),
    (
        {
            "worker": {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "$(A)"},
                    {"name": "A", "value": "$(B)"},
                ]
            }
        },
        ['worker.env of group "worker": A', '"$(B)"'],
    ),
    (
        {"worker": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)x"}]}},
        ['worker.env of group "worker": A', '"$(A)x"'],
    ),
    ({"staging": {"command": ["true"]}}, ["staging.command", "staging.path"]),
    ({"staging": {"path": "/data/x"}}, ["staging.path", "staging.command"]),
    ({"staging": {"command": ["true"], "path": "/data/x"}}, ["staging.path", "volumeMounts"]),
    (
        {
            "staging": {"command": ["true"], "path": "/data/"},
            "volumeMounts": [{"name": "x", "mountPath": "/data"}],
        },
        ["staging.path", "volumeMounts[].mountPath"],
    ),
    (
        {
            "staging": {"command": ["true"], "path": "/database"},
            "volumeMounts": [{"name": "x", "mountPath": "/data"}],
        },
        ["staging.path", "volumeMounts"],
    ),
    ({"results": {"command": ["store"]}}, ["results.path", "OUTPUT_PATH"]),
    ({"results": {"command": ["store"], "path": "/elsewhere"}}, ["results.path", "volumeMounts"]),
    (
        {
            "results": {"command": ["s"], "path": "/o"},
            "volumes": [{"name": "x", "emptyDir": {}}],
            "volumeMounts": [{"name": "x", "mountPath": "/o"}],
        },
        ["results.path", "emptyDir"],
    ),
    ({"results": {"onFailure": True}}, ["results.onFailure", "results.command"]),
    ({"horovod": {"timeline": True}}, ["horovod.timeline", "worker.env", "OUTPUT_PATH"]),
    ({"tensorboard": {"enabled": True}}, ["tensorboard.logDir", "OUTPUT_PATH"]),
    (
        {"tensorboard": {"enabled": True, "logDir": "/outside"}},
        ["tensorboard.logDir", "volumeMounts"],
    ),
    ({"metrics": {"podMonitor": True}}, ["metrics.podMonitor", "metrics.enabled"]),
    (
        {"workerGroups": [{"name": "a"}, {"name": "b", "env": [TAGS]}]},
        [
            'HVD_TAG_OUTPUT in env is not set for group "a" but {"name":',
            'for group "b"',
        ],
    ),
    (
        {"workerGroups": [{"name": "a", "env": [TAGS]}, {"name": "b"}]},
        ['"value":"1"} for group "a" but not set for group "b"'],
    ),
    (
        {"tensorboard": {"allowFrom": [{"podSelector": {}}]}},
        ["tensorboard.allowFrom", "tensorboard.enabled"],
    ),
    (
        {
            "tensorboard": {"enabled": True, "logDir": "/o", "allowFrom": [{"podSelector": {}}]},
            "networkPolicy": {"enabled": False},
            "volumeMounts": [{"name": "x", "mountPath": "/o"}],
        },
        ["tensorboard.allowFrom", "networkPolicy.enabled"],
    ),
    ({"code": {"files": {"a.py": "", "b.py": ""}}}, ["code", "master.args"]),
    ({"code": {"archive": "UEsDBA=="}}, ["code.archive"]),
]
# Values, and what the message says to do about them.
REMEDIES: list[tuple[Values, list[str]]] = [
    (
        {
            "fullnameOverride": "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr",
            "workerGroups": [{"name": "gggggggggggg"}],
        },
        ["workerGroups[].name"],
    ),
    (
        {"launch": {"mode": "custom", "options": ["-v"]}, "master": {"args": ["mpirun"]}},
        ["master.args"],
    ),
    ({"hostNetwork": True, "worker": {"podSpec": {"dnsPolicy": "Default"}}}, ["hostNetwork"]),
    (
        {"master": {"podSpec": {"containers": []}}},
        ["master.initContainers, with restartPolicy: Always"],
    ),
    ({"worker": {"podSpec": {"containers": []}}}, ["worker.extraContainers"]),
    ({"workerGroups": [{"name": "a"}, {"name": "b", "env": [TAGS]}]}, ["worker.env"]),
]
# Values that the schema refuses.
WRONG_VALUES: list[tuple[Values, list[str]]] = [
    ({"wroker": {}}, ["wroker"]),
    ({"launch": {"mode": "mpiexec"}}, ["/launch/mode"]),
    ({"worker": {"number": "two"}}, ["/worker/number"]),
    ({"image": {"repository": "r.example:5000/a:1"}}, ["/image/repository", "r.example:5000/a:1"]),
    ({"worker": {"image": {"repository": "python:3.11"}}}, ["/worker/image/repository"]),
    ({"agent": {"port": 1023}}, ["/agent/port"]),
    ({"agent": {"generation": 0}}, ["/agent/generation"]),
    ({"launch": {"preload": ["a..b"]}}, ["/launch/preload/0"]),
    ({"fullnameOverride": "a.b"}, ["/fullnameOverride", "a.b"]),
    ({"fullnameOverride": "r" * 48}, ["/fullnameOverride", "47"]),
    ({"workerGroups": [{"name": "1"}]}, ["/workerGroups/0/name"]),
    ({"workerGroups": [{"name": "a", "number": None}]}, ["/workerGroups/0/number"]),
    ({"code": {"files": {"src/train.py": ""}}}, ["/code/files", "src/train.py"]),
    # As --set-file makes it of a name without backslashes.
    ({"code": {"files": {"train": {"p y": ""}}}}, ["/code/files/train", "p y"]),
]


def case_id(part: Values | list[str]) -> str:
    """Return the name of a case."""
    return json.dumps(part) if isinstance(part, dict) else ""


def parts(message: str) -> tuple[str, str]:
    """Return what a message of horovod.refuse refuses, and the reason with the remedy."""
    match = MESSAGE.search(message)
    assert match, message
    return match["what"], match["rest"]


def missing(names: list[str], text: str) -> list[str]:
    """Return the names that are not in the text, or only within longer ones."""
    patterns = {name: rf"(?<![\w.]){re.escape(name)}(?![\w.\[])" for name in names}
    return [name for name, pattern in patterns.items() if not re.search(pattern, text)]


@pytest.mark.parametrize(("values", "names"), CONTRADICTIONS, ids=case_id)
def test_contradiction_names_both_keys(values: Values, names: list[str]) -> None:
    what, _ = parts(refusal(values))
    assert missing(names, what) == [], what


@pytest.mark.parametrize(("values", "names"), REMEDIES, ids=case_id)
def test_remedy_names_the_key_to_change(values: Values, names: list[str]) -> None:
    _, rest = parts(refusal(values))
    assert missing(names, rest) == [], rest


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize(("values", "names"), WRONG_VALUES, ids=case_id)
def test_schema_error_names_the_key(helm: str, values: Values, names: list[str]) -> None:
    done = helm_template(values, helm=helm)
    assert done.returncode != 0
    assert [name for name in names if name not in done.stderr] == [], done.stderr


def test_code_that_does_not_fit_is_refused() -> None:
    most = int(read_data("resources.json")["codeCharacters"])
    files = {"train.py": "x" * (most + 1)}
    assert f"use at most {most}" in refusal({"code": {"files": files}})
