"""The chart refuses values that contradict each other, and names each key and the remedy."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from hvdchart.chart_files import read_data
from hvdchart.spec.overlays import merge_trees
from tests.chart.releases import on_nodes
from tests.chart.render import CHART, Manifest, Values, helm_template, refusal, render

# The message of horovod.refuse: what is refused may begin with the group that it is about.
MESSAGE = re.compile(
    r"execution error at \([^)]*\): "
    r'(?P<what>(?:(?:worker\.env of )?group "[^"]*": )?.*?): '
)
TAGS = {"name": "HVD_TAG_OUTPUT", "value": "1"}
AT_DATA = [{"name": "x", "mountPath": "/data"}]
# Values; what the message names as refused: both keys, and what is in them; and what it says to do,
# as values to merge, in which None removes a key.
CONTRADICTIONS: list[tuple[Values, list[str], Values]] = [
    (
        {
            "worker": {
                "slots": 2,
                "resources": {"limits": {"nvidia.com/gpu": 1, "amd.com/gpu": 1}},
            }
        },
        ['group "worker": resources.limits', "amd.com", "nvidia.com"],
        {"worker": None, "workerGroups": [{"name": "a"}, {"name": "b"}]},
    ),
    (
        {
            "worker": {
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        },
        ['group "worker": env', "NVIDIA_VISIBLE_DEVICES", 'resources.limits["nvidia.com/gpu"]'],
        {"worker": {"env": []}},
    ),
    (
        {"workerGroups": [{"name": "a"}, {"name": "a"}]},
        ["workerGroups", '"a"'],
        {"workerGroups": [{"name": "a"}, {"name": "b"}]},
    ),
    (
        {"workerGroups": [{"name": "master"}]},
        ["workerGroups[].name", '"master"'],
        {"workerGroups": [{"name": "b"}]},
    ),
    (
        {
            "fullnameOverride": "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr",
            "workerGroups": [{"name": "gggggggggggg"}],
        },
        ["StatefulSet name", "53"],
        {"workerGroups": [{"name": "ggggggggggg"}]},
    ),
    (
        {"nameOverride": "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"},
        ["nameOverride", "48"],
        {"fullnameOverride": "n"},
    ),
    (
        {"workerGroups": [{"name": "a", "number": 9000}, {"name": "b", "number": 2000}]},
        ["number and spares of worker and workerGroups", "11000"],
        {"workerGroups": [{"name": "a", "number": 9000}, {"name": "b", "number": 1000}]},
    ),
    (
        {
            "worker": {"spares": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ['group "worker": spares', "master.args", '"hvd-worker-0"'],
        {"master": {"args": ["mpirun", "--hostfile", "$(HOSTFILE)"]}},
    ),
    (
        {"worker": {"number": 2, "minimum": 3}},
        ['group "worker": minimum', "number"],
        {"worker": {"minimum": 2}},
    ),
    (
        {
            "worker": {"minimum": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ['group "worker": minimum', "master.args", '"hvd-worker-0"'],
        {"master": {"args": ["time", "$(LAUNCH)", "train"]}},
    ),
    (
        {"launch": {"mode": "custom"}},
        ["launch.mode", "master.args"],
        {"master": {"args": ["mpirun"]}},
    ),
    (
        {"launch": {"allowIdleWorkers": True}},
        ["launch.allowIdleWorkers", "launch.mode"],
        {"launch": {"allowIdleWorkers": None}},
    ),
    (
        {"launch": {"mode": "direct", "framework": "mpi"}},
        ["launch.framework", "launch.mode"],
        {"launch": {"mode": "mpirun"}},
    ),
    (
        {"launch": {"mode": "direct", "options": ["--other"]}},
        ["launch.options", "launch.mode"],
        {"launch": {"options": None}},
    ),
    (
        {"launch": {"mode": "custom", "options": ["-v"]}, "master": {"args": ["mpirun"]}},
        ["launch.mode", "launch.options", "launch.binding"],
        {"launch": {"options": None}, "master": {"args": ["mpirun", "-v"]}},
    ),
    (
        {"master": {"args": ["/opt/bin/horovodrun", "-np", "2", "a"]}},
        ["master.args", "horovodrun"],
        {"launch": {"mode": "custom"}},
    ),
    (
        {"master": {"args": ["time", "$(LAUNCH)"]}},
        ["master.args", "launch.mode"],
        {"launch": {"mode": "custom"}},
    ),
    (
        {"launch": {"binding": {"to": "core"}}},
        ["launch.binding.to", "launch.binding.coresPerRank"],
        {"launch": {"binding": {"coresPerRank": 1}}},
    ),
    (
        {"launch": {"binding": {"to": "socket", "ranksPerSocket": 1, "coresPerRank": 2}}},
        ["launch.binding.coresPerRank", "launch.binding.to"],
        {"launch": {"binding": {"coresPerRank": None}}},
    ),
    (
        {"launch": {"binding": {"ranksPerSocket": 1}}},
        ["launch.binding.ranksPerSocket", "launch.binding.to"],
        {"launch": {"binding": {"to": "socket"}}},
    ),
    (
        {"master": {"ttlSecondsAfterFinished": 60}},
        ["master.ttlSecondsAfterFinished", "cleanup"],
        {"cleanup": "Always"},
    ),
    (
        {"cleanup": "Always", "serviceAccount": {"create": False}},
        ["cleanup", "serviceAccount.create"],
        {"serviceAccount": {"name": "own"}},
    ),
    (
        {"podSecurityContext": {"runAsUser": 0}},
        ["podSecurityContext.runAsUser", "runAsNonRoot"],
        {"podSecurityContext": {"runAsNonRoot": False}},
    ),
    (
        {"worker": {"spread": "Required", "affinity": {"podAntiAffinity": {}}}},
        ['group "worker": spread', "affinity.podAntiAffinity"],
        {"worker": {"spread": "None"}},
    ),
    (
        {"workerGroups": [{"name": "rdma", "capabilities": ["IPC_LOCK"]}]},
        ['group "rdma": capabilities', "podSecurityContext.runAsUser"],
        {"podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False}},
    ),
    (
        {"gang": "Kubernetes"},
        ["gang", "PodGroup of scheduling.k8s.io/v1beta1"],
        {"gang": "Volcano"},
    ),
    (
        {"networkPolicy": {"enabled": True}, "hostNetwork": True},
        ["networkPolicy.enabled", "hostNetwork"],
        {"networkPolicy": {"enabled": False}},
    ),
    (
        {"serviceMesh": "Ambient", "hostNetwork": True},
        ["serviceMesh", "hostNetwork"],
        {"hostNetwork": False},
    ),
    (
        {"hostNetwork": True, "agent": {"port": 6443}},
        ["hostNetwork", "agent.port"],
        {"agent": {"port": 2222}},
    ),
    (
        {"hostNetwork": True, "agent": {"port": 32000}},
        ["hostNetwork", "agent.port"],
        {"agent": {"port": 2222}},
    ),
    (
        {"metrics": {"enabled": True}, "agent": {"port": 9400}},
        ["metrics.enabled", "agent.port"],
        {"agent": {"port": 2222}},
    ),
    (
        {"agent": {"masterSecret": "a"}},
        ["agent.masterSecret", "agent.workerSecret"],
        {"agent": {"workerSecret": "b"}},
    ),
    (
        {"agent": {"workerSecret": "b"}},
        ["agent.masterSecret", "agent.workerSecret"],
        {"agent": {"masterSecret": "a"}},
    ),
    (
        {"agent": {"masterSecret": "a", "workerSecret": "a"}},
        ["agent.masterSecret", "agent.workerSecret"],
        {"agent": {"workerSecret": "b"}},
    ),
    (
        {"image": {"repository": ""}},
        ["image.repository", 'group "worker"'],
        {"image": {"repository": "a"}},
    ),
    (
        {"image": {"repository": ""}, "worker": {"image": {"repository": "a"}}},
        ["image.repository", "master"],
        {"image": {"repository": "a"}},
    ),
    (
        {
            "image": {"repository": ""},
            "worker": {"image": {"repository": "a"}},
            "master": {"image": {"repository": "a"}},
            "tensorboard": {"enabled": True, "logDir": "/data"},
            "volumeMounts": AT_DATA,
        },
        ["image.repository", "tensorboard"],
        {"image": {"repository": "a"}},
    ),
    (
        {"worker": {"podSpec": {"nodeSelector": {}}}},
        ["worker.podSpec", "nodeSelector"],
        {"worker": {"podSpec": None, "nodeSelector": {"a": "b"}}},
    ),
    (
        {"workerGroups": [{"name": "a", "podSpec": {"containers": []}}]},
        ["workerGroups[a].podSpec", "containers"],
        {"workerGroups": [{"name": "a", "extraContainers": [{"name": "x"}]}]},
    ),
    (
        {"master": {"podSpec": {"containers": []}}},
        ["master.podSpec", "containers"],
        {"master": {"podSpec": None, "initContainers": [{"name": "x", "restartPolicy": "Always"}]}},
    ),
    (
        {"worker": {"podSpec": {"subdomain": "x"}}},
        ["worker.podSpec", "subdomain"],
        {"worker": {"podSpec": None}},
    ),
    (
        {"hostNetwork": True, "worker": {"podSpec": {"dnsPolicy": "Default"}}},
        ["worker.podSpec", "dnsPolicy"],
        {"hostNetwork": True, "worker": {"podSpec": None}},
    ),
    (
        {"master": {"container": {"command": ["x"]}}},
        ["master.container", "command"],
        {"master": {"container": None, "args": ["x"]}},
    ),
    (
        {"worker": {"extraContainers": [{"name": "worker"}]}},
        ["worker.extraContainers", '"worker"'],
        {"worker": {"extraContainers": [{"name": "x"}]}},
    ),
    (
        {"worker": {"initContainers": [{"name": "x"}], "extraContainers": [{"name": "x"}]}},
        ["worker.extraContainers", 'another container named "x"'],
        {"worker": {"extraContainers": [{"name": "y"}]}},
    ),
    (
        {"podLabels": {"app.kubernetes.io/component": "x"}},
        ["podLabels", "app.kubernetes.io/component"],
        {"podLabels": {"app.kubernetes.io/component": None}},
    ),
    (
        {"labels": {"app.kubernetes.io/managed-by": "x"}},
        ["labels", "app.kubernetes.io/managed-by"],
        {"labels": {"app.kubernetes.io/managed-by": None}},
    ),
    (
        {"labels": {"hvdchart/run": "x"}},
        ["labels", "hvdchart/run"],
        {"labels": {"hvdchart/run": None}},
    ),
    (
        {"podLabels": {"hvdchart/revision": "x"}},
        ["podLabels", "hvdchart/revision"],
        {"podLabels": {"hvdchart/revision": None}},
    ),
    *(
        (
            {"volumeMounts": [{"name": "x", "mountPath": path}]},
            ["volumeMounts", path],
            {"volumeMounts": AT_DATA},
        )
        for path in ("horovod/keys", "../horovod/keys", "./horovod/", "//horovod/keys")
    ),
    (
        {"volumes": [{"name": "programs", "emptyDir": {}}]},
        ["volumes", '"programs"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    (
        {"volumes": [{"name": "archive", "emptyDir": {}}]},
        ["volumes", '"archive"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    (
        {"volumes": [{"name": "tmp", "emptyDir": {}}]},
        ["volumes", '"tmp"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    (
        {"volumes": [{"name": "shm", "emptyDir": {}}]},
        ["volumes", '"shm"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/data/..//horovod/./keys/"}]},
        ["volumeMounts", "/data/..//horovod/./keys/"],
        {
            "volumes": [{"name": "x", "emptyDir": {}}],
            "volumeMounts": [{"name": "x", "mountPath": "/data/keys"}],
        },
    ),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/archive"}]},
        ["volumeMounts", "/horovod/archive"],
        {"volumeMounts": AT_DATA},
    ),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/bin/hvd_pods/rank"}]},
        ["volumeMounts", "/horovod/bin/hvd_pods/rank"],
        {"volumeMounts": AT_DATA},
    ),
    (
        {"volumes": [{"name": "keys", "emptyDir": {}}]},
        ["volumes", '"keys"'],
        {"volumes": [{"name": "mine", "emptyDir": {}}]},
    ),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/keys"}]},
        ["volumeMounts", "/horovod/keys"],
        {"volumeMounts": AT_DATA},
    ),
    (
        {"volumeMounts": [{"name": "x", "mountPath": "/horovod/"}]},
        ["volumeMounts", "/horovod/"],
        {"volumeMounts": AT_DATA},
    ),
    (
        {"worker": {"env": [{"name": "HVD_SLOTS", "value": "4"}]}},
        ["worker.env", "HVD_SLOTS"],
        {"worker": {"env": [{"name": "SLOTS", "value": "4"}]}},
    ),
    (
        {"staging": {"env": [{"name": "STAGING_KEY", "value": "x"}]}},
        ["staging.env", "STAGING_KEY"],
        {"staging": {"env": [{"name": "KEY", "value": "x"}]}},
    ),
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
        {"worker": {"env": [{"name": "A", "value": "1"}]}},
    ),
    (
        {"worker": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)x"}]}},
        ['worker.env of group "worker": A', '"$(A)x"'],
        {"worker": {"env": [{"name": "A", "value": "1x"}]}},
    ),
    (
        {"staging": {"command": ["true"]}, "volumeMounts": AT_DATA},
        ["staging.command", "staging.path"],
        {"staging": {"path": "/data/x"}},
    ),
    (
        {"staging": {"path": "/data/x"}, "volumeMounts": AT_DATA},
        ["staging.path", "staging.command"],
        {"staging": {"command": ["true"]}},
    ),
    (
        {"staging": {"command": ["true"], "path": "/data/x"}},
        ["staging.path", "volumeMounts"],
        {"volumeMounts": AT_DATA},
    ),
    (
        {"staging": {"command": ["true"], "path": "/data/"}, "volumeMounts": AT_DATA},
        ["staging.path", "volumeMounts[].mountPath"],
        {"staging": {"path": "/data/x"}},
    ),
    (
        {"staging": {"command": ["true"], "path": "/database"}, "volumeMounts": AT_DATA},
        ["staging.path", "volumeMounts"],
        {"staging": {"path": "/data/x"}},
    ),
    (
        {"horovod": {"timeline": True}, "volumeMounts": AT_DATA},
        ["horovod.timeline", "worker.env", "OUTPUT_PATH"],
        {"worker": {"env": [{"name": "OUTPUT_PATH", "value": "/data"}]}},
    ),
    (
        {"tensorboard": {"enabled": True}, "volumeMounts": AT_DATA},
        ["tensorboard.logDir", "OUTPUT_PATH"],
        {"tensorboard": {"logDir": "/data"}},
    ),
    *(
        (
            {
                "tensorboard": {"enabled": True, "logDir": "/data/logs"},
                "volumes": [{"name": "x", kind: {}}],
                "volumeMounts": AT_DATA,
            },
            ["tensorboard.logDir", "volumes", '"x"'],
            {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]},
        )
        for kind in ("emptyDir", "ephemeral")
    ),
    (
        {"tensorboard": {"enabled": True, "logDir": "/data"}},
        ["tensorboard.logDir", "volumeMounts"],
        {"volumeMounts": AT_DATA},
    ),
    (
        {"metrics": {"allowFrom": [{"podSelector": {}}]}},
        ["metrics.allowFrom", "metrics.enabled"],
        {"metrics": {"enabled": True}},
    ),
    (
        {"metrics": {"podMonitor": True}},
        ["metrics.podMonitor", "metrics.enabled"],
        {"metrics": {"enabled": True}},
    ),
    (
        {"workerGroups": [{"name": "a"}, {"name": "b", "env": [TAGS]}]},
        [
            'HVD_TAG_OUTPUT in env is not set for group "a" but {"name":',
            'for group "b"',
        ],
        {"worker": {"env": [TAGS]}},
    ),
    (
        {"workerGroups": [{"name": "a", "env": [TAGS]}, {"name": "b"}]},
        ['"value":"1"} for group "a" but not set for group "b"'],
        {"worker": {"env": [TAGS]}},
    ),
    (
        {"tensorboard": {"allowFrom": [{"podSelector": {}}]}},
        ["tensorboard.allowFrom", "tensorboard.enabled"],
        {"tensorboard": {"allowFrom": None}},
    ),
    (
        {
            "tensorboard": {"enabled": True, "logDir": "/data", "allowFrom": [{"podSelector": {}}]},
            "networkPolicy": {"enabled": False},
            "volumeMounts": AT_DATA,
        },
        ["tensorboard.allowFrom", "networkPolicy.enabled"],
        {"tensorboard": {"allowFrom": None}},
    ),
    (
        {"code": {"files": {"a.py": "", "b.py": ""}}},
        ["code", "master.args"],
        {"master": {"args": ["python", "a.py"]}},
    ),
    (
        {"code": {"archive": "UEsDBA=="}, "master": {"args": ["true"]}},
        ["code.archive"],
        {"code": {"archive": "H4sIzz"}},
    ),
]
# Values that the schema refuses.
WRONG_VALUES: list[tuple[Values, list[str]]] = [
    ({"wrkr": {}}, ["wrkr"]),
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
    *(
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": count}}}}, ["nvidia.com~1gpu"])
        for count in ("1k", "8e0", "08", "8.0", "1Ki", "+8", "0x8", "", "1000000000", 0.5, -1, 1e10)
    ),
    ({"workerGroups": [{"name": "a", "resources": {"limits": {"b.c/d": "1k"}}}]}, ["b.c~1d"]),
    ({"code": {"files": {"src/train.py": ""}}}, ["/code/files", "src/train.py"]),
    # As --set-file makes it of a name without backslashes.
    ({"code": {"files": {"train": {"p y": ""}}}}, ["/code/files/train", "p y"]),
]


def case_id(part: Values | list[str]) -> str:
    """Return the name of a case."""
    return json.dumps(part) if isinstance(part, dict) else ""


def find_refused(message: str) -> str:
    """Return what a message of horovod.refuse refuses, without the reason and the remedy."""
    match = MESSAGE.search(message)
    assert match, message
    return match["what"]


def missing(names: list[str], text: str) -> list[str]:
    """Return the names that are not in the text, or only within longer ones."""
    patterns = {name: rf"(?<![\w.]){re.escape(name)}(?![\w.\[])" for name in names}
    return [name for name, pattern in patterns.items() if not re.search(pattern, text)]


def keys_of(values: Values) -> set[str]:
    """Return the names of the values, without those of the maps around them."""
    inner = [
        keys_of(value) if isinstance(value, dict) and value else {key}
        for key, value in values.items()
    ]
    return set().union(*inner)


@pytest.mark.parametrize(("values", "names", "remedy"), CONTRADICTIONS, ids=case_id)
def test_contradiction_names_both_keys(values: Values, names: list[str], remedy: Values) -> None:
    what = find_refused(refusal(values))
    assert missing(names, what) == [], what


@pytest.mark.parametrize(("values", "names", "remedy"), CONTRADICTIONS, ids=case_id)
def test_remedy_is_in_the_message_and_works(
    values: Values, names: list[str], remedy: Values
) -> None:
    message = refusal(values)
    assert [key for key in keys_of(remedy) if key.removesuffix("s") not in message] == []
    render(merge_trees(values, remedy, lambda _, value: value is None))


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_refusal_names_a_place_among_the_checks(helm: str) -> None:
    """Helm names the file that it renders first, whichever file has the check."""
    done = helm_template({"worker": {"number": 2, "minimum": 3}}, helm=helm)
    assert re.findall(r"[(]horovod/templates/(\w+)/", done.stderr) == ["checks"]


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize(("values", "names"), WRONG_VALUES, ids=case_id)
def test_schema_error_names_the_key(helm: str, values: Values, names: list[str]) -> None:
    done = helm_template(values, helm=helm)
    assert done.returncode != 0
    assert [name for name in names if name not in done.stderr] == [], done.stderr


def test_code_that_does_not_fit_is_refused() -> None:
    most = int(read_data("resources.json")["codeBytes"])
    files = {"train.py": "x" * (most + 1)}
    assert f"use at most {most}" in refusal({"code": {"files": files}})


# What the check of a port sees of a cluster, which `helm template` does not reach.
CHECK_OF_PORT = """\
{{- $_ := set . "facts" .Values.facts -}}
{{- include "horovod.checkPortInUse" . -}}
"""


@pytest.fixture(scope="module")
def check_of_port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart of nothing but the check."""
    chart = tmp_path_factory.mktemp("port")
    templates = chart / "templates"
    templates.mkdir()
    for name in ("checks/_checks.tpl", "checks/_network.tpl", "common/_labels.tpl"):
        shutil.copy(CHART / "templates" / name, templates)
    (templates / "check.yaml").write_text(CHECK_OF_PORT)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: port\nversion: 1.0.0\n")
    return chart


@pytest.mark.parametrize(
    ("found", "is_refused"),
    [
        (on_nodes(2222, release="hvd"), False),
        (on_nodes(2222, release="other"), True),
        (on_nodes(2223, release="other"), False),
        (on_nodes(2222, release="hvd", name="second"), True),
    ],
    ids=["its own", "another release", "another port", "another dependency of the release"],
)
def test_port_that_other_workers_have_of_the_nodes_is_refused(
    check_of_port: Path, found: Manifest, *, is_refused: bool
) -> None:
    name = found["metadata"]["name"]
    values = {"hostNetwork": True, "agent": {"port": 2222}}
    facts = {"name": "horovod", "values": values, "statefulSets": {name: found}}
    done = helm_template({"facts": facts}, chart=check_of_port)
    assert (done.returncode != 0) is is_refused
    assert (f'"{name}"' in done.stderr) is is_refused
