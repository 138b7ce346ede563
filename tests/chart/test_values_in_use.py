"""Every value of the chart has an effect on the manifests, and on the run that it declares."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache, reduce
from typing import Any

import pytest

from devtools.docs_gen.chart_docs import declared_hashes, load_source
from hvdchart.values.merge import merge_values
from tests.chart.cases import KUBERNETES_GANG
from tests.chart.render import Values, helm_template, nested

# Turns everything on, so that each value below can have an effect.
BASE: Values = {
    "metrics": {"enabled": True},
    "tensorboard": {"enabled": True, "logDir": "/zzlogs/of-run"},
    "staging": {"path": "/zzdata/set", "command": ["zzfetch"]},
    "volumes": [
        {"name": "logs", "hostPath": {"path": "/a"}},
        {"name": "data", "hostPath": {"path": "/b"}},
    ],
    "volumeMounts": [
        {"name": "logs", "mountPath": "/zzlogs"},
        {"name": "data", "mountPath": "/zzdata"},
    ],
    "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/zzlogs/of-run"}]},
}
# Each value contains text that appears nowhere else in the manifests.
MARKED: Values = {
    "fullnameOverride": "zz01",
    "image": {"repository": "zz02", "tag": "zz03"},
    "imagePullSecrets": [{"name": "zz04"}],
    "labels": {"zz95": "x"},
    "podLabels": {"zz60": "x"},
    "podAnnotations": {"zz61": "x"},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "zz64"}}],
    "worker": {
        "number": 7105,
        "slots": 706,
        "spares": 781,
        "resources": {"requests": {"zz07/x": 1}},
        "nodeSelector": {"zz08": "x"},
        "affinity": {"nodeAffinity": {"zz09": {}}},
        "tolerations": [{"key": "zz10"}],
        "podLabels": {"zz13": "x"},
        "podAnnotations": {"zz14": "x"},
        "env": [*BASE["worker"]["env"], {"name": "ZZ15", "value": "x"}],
        "image": {"repository": "zz16"},
        "envFrom": [{"prefix": "zz65"}],
        "initContainers": [{"name": "zz67"}],
        "extraContainers": [{"name": "zz68"}],
        "terminationGracePeriodSeconds": 769,
        "podSpec": {"nodeName": "zz70"},
        "container": {"workingDir": "/zz71"},
    },
    "master": {
        "envFrom": [{"prefix": "zz74"}],
        "initContainers": [{"name": "zz75"}],
        "terminationGracePeriodSeconds": 776,
        "podSpec": {"nodeName": "zz77"},
        "container": {"workingDir": "/zz78"},
        "args": ["zz17"],
        "image": {"tag": "zz18"},
        "env": [{"name": "ZZ19", "value": "x"}],
        "resources": {"requests": {"zz20/x": 1}},
        "nodeSelector": {"zz21": "x"},
        "affinity": {"nodeAffinity": {"zz22": {}}},
        "tolerations": [{"key": "zz23"}],
        "podLabels": {"zz24": "x"},
        "podAnnotations": {"zz25": "x"},
        "backoffLimit": 726,
        "ttlSecondsAfterFinished": 70027,
        "activeDeadlineSeconds": 70028,
    },
    "launch": {
        "options": ["--zz29"],
        "workersTimeoutSeconds": 7030,
        "lostAfterSeconds": 7082,
        "shrinkAfterSeconds": 7083,
        "stallTimeoutSeconds": 7081,
        "preload": ["zz79.zz80"],
        "binding": {"to": "core", "coresPerRank": 752, "ranksPerSocket": 753},
    },
    "network": {"interface": "zz31"},
    "agent": {"port": 7032, "masterSecret": "zz33", "workerSecret": "zz85"},
    "priorityClassName": "zz34",
    "schedulerName": "zz35",
    "queueName": "zz36",
    "horovod": {"fusionThresholdMiB": 7037, "cycleTimeMs": 70.38},
    "tensorboard": {
        "image": {"repository": "zz39"},
        "resources": {"requests": {"zz40/x": 1}},
        "allowFrom": [{"podSelector": {"zz56": "x"}}],
    },
    "metrics": {
        "port": 7409,
        "podMonitor": {"labels": {"zz57": "x"}, "interval": "7058s"},
        "rules": {"labels": {"zz88": "x"}},
        "dashboard": {"labels": {"zz89": "x"}, "annotations": {"zz90": "x"}},
        "allowFrom": [{"podSelector": {"zz86": "x"}}],
    },
    "staging": {"image": {"repository": "zz42"}, "env": [{"name": "ZZ43", "value": "x"}]},
    "shm": {"sizeLimit": "7044Mi"},
    "podSecurityContext": {
        "runAsUser": 7045,
        "runAsGroup": 7046,
        "fsGroup": 7047,
        "seccompProfile": {"type": "zz48"},
    },
    "securityContext": {"capabilities": {"drop": ["zz49"]}},
    "serviceAccount": {"name": "zz50", "annotations": {"zz51": "x"}},
    "cleanup": "Always",
    "code": {"files": {"zz54.py": "zz55"}},
}
# 7037 MiB in bytes.
SHOWN_AS = {"7037": str(7037 * 1048576)}
# Enumerations and booleans: changing one of them must change the manifests of the base.
CHANGED: dict[str, Any] = {
    "session.id": "1a2b",
    "session.leaseSeconds": 600,
    "nameOverride": "other",
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "worker.minimum": 1,
    "worker.spread": "Required",
    "worker.capabilities": ["IPC_LOCK"],
    "workerGroups": [{"name": "other"}],
    "master.generation": 2,
    "master.suspend": True,
    "code.archive": "H4sIzz",
    "code.requirements": "Ignore",
    "launch.mode": "direct",
    "launch.failOnNaN": True,
    "launch.allowIdleWorkers": True,
    "network.transport": "TCP",
    "agent.generation": 2,
    "hostNetwork": True,
    "networkPolicy.enabled": False,
    "podDisruptionBudget.enabled": True,
    "launch.framework": "jax",
    "serviceMesh": "Hold",
    "gang": "Volcano",
    "horovod.timeline": True,
    "horovod.autotune": True,
    "tensorboard.enabled": False,
    "tensorboard.logDir": "/zzdata",
    "metrics.enabled": False,
    "staging.verify": "Checksum",
    "staging.nodes": "Required",
    "cleanup": "Never",
    "podSecurityContext": {"runAsNonRoot": False, "fsGroupChangePolicy": "Always"},
    "securityContext": {"allowPrivilegeEscalation": True, "readOnlyRootFilesystem": False},
    "serviceAccount.create": False,
    "rbac.create": False,
}
# Further values that a changed value needs.
WITH: dict[str, Values] = {
    "session.leaseSeconds": {"session": {"id": "1a2b"}},
    "worker.capabilities": {"podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False}},
    "code.archive": {"master": {"args": ["true"]}},
    "launch.allowIdleWorkers": {"launch": {"mode": "custom"}, "master": {"args": ["true"]}},
}
# Words in MARKED that other values there need.
NEEDED = {"cleanup", "launch.binding.to"}
# Values that BASE sets because others need them, and those that only other charts read.
IN_BASE = {"volumes", "volumeMounts", "worker.env", "staging.path", "staging.command"}
UNREAD = {"enabled", "global", "programs"}


@cache
def rendered(values: str) -> str:
    done = helm_template(json.loads(values), apis=KUBERNETES_GANG)
    assert done.returncode == 0, done.stderr
    return done.stdout


def leaves(node: Values, prefix: str = "") -> dict[str, Any]:
    """Return values by dotted key, without looking into Kubernetes' own objects and into lists."""
    by_key: dict[str, Any] = {}
    for name, child in node.items():
        key = f"{prefix}{name}"
        by_key |= {key: child} if key in HASHES else leaves(child, f"{key}.")
    return by_key


# What each value of the source declares, by dotted key.
HASHES = dict(declared_hashes(load_source()))


def changed_hashes(values: list[Values]) -> list[bool]:
    """Whether the identity of the run differs between values, and whether its settings do."""
    texts = [rendered(json.dumps(overrides)) for overrides in values]
    return [
        len({re.findall(rf'hvdchart/{label}: "?(\w+)', text)[0] for text in texts}) > 1
        for label in ("run", "settings-hash")
    ]


def marks_in(value: Any) -> list[str]:
    return re.findall(r"zz\d\d|ZZ\d\d|\b7\d{2,}|\b70\.38\b", json.dumps(value))


def test_each_marked_value_has_a_mark_unless_others_need_it() -> None:
    unmarked = {key for key, value in leaves(MARKED).items() if not marks_in(value)}
    assert unmarked == NEEDED


def test_marked_values_are_in_the_manifests() -> None:
    text = rendered(json.dumps(merge_values(BASE, MARKED)))
    wanted = marks_in(MARKED)
    assert [mark for mark, uses in Counter(wanted).items() if uses > 1] == []
    missing = [mark for mark in wanted if SHOWN_AS.get(mark, mark) not in text]
    assert missing == []


def before_and_after(key: str) -> list[Values]:
    """The values with which the key has an effect, without and with a change of it."""
    base = merge_values(BASE, WITH.get(key, {}))
    return [base, merge_values(base, nested(key.split("."), CHANGED[key]))]


@pytest.mark.parametrize("key", CHANGED)
def test_changed_value_changes_the_manifests(key: str) -> None:
    before, after = (rendered(json.dumps(values)) for values in before_and_after(key))
    assert before != after


@pytest.mark.parametrize("key", CHANGED)
def test_changed_value_changes_the_hashes_that_it_declares(key: str) -> None:
    expected = {"identity": [True, True], "settings": [False, True], "none": [False, False]}
    assert changed_hashes(before_and_after(key)) == expected[HASHES[key]]


@pytest.mark.parametrize(("declared", "changes_settings"), [("settings", True), ("none", False)])
def test_values_that_do_not_decide_what_is_trained_leave_the_run_as_it_is(
    declared: str, *, changes_settings: bool
) -> None:
    chosen = [
        nested(key.split("."), value)
        for key, value in leaves(MARKED).items()
        if HASHES[key] == declared
    ]
    assert len(chosen) > 3
    assert changed_hashes([BASE, reduce(merge_values, chosen, BASE)]) == [False, changes_settings]


def test_every_value_of_the_schema_is_tested_here() -> None:
    tested = set(leaves(MARKED)) | set(CHANGED) | IN_BASE | UNREAD
    # Each image key has the same three keys below it; one of them stands for all.
    tested = {re.sub(r"\.image\..*", ".image", key) for key in tested}
    assert HASHES.keys() == tested
