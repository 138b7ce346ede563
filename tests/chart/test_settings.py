"""What values become: the variables of ranks, and what the master gets of its run."""

from __future__ import annotations

import json
import re
from typing import Any, get_origin, get_type_hints

import pytest

from hvd_pods.shared.paths import METRICS
from hvd_pods.shared.run import parse_run
from tests.chart.cases import EVERY_POD
from tests.chart.render import (
    Values,
    main_container,
    of_kind,
    one,
    pod_spec,
    render,
    run_settings,
    variables,
)

# Values, and what follows from them: of `seen`; None is what is not there.
EFFECTS: dict[str, tuple[Values, dict[str, Any]]] = {
    "no values: defaults of fusion and preload": (
        {},
        {
            "HVD_FUSION_BY_RANKS": "1",
            "HOROVOD_FUSION_THRESHOLD": None,
            "HVD_PRELOAD": None,
        },
    ),
    "no values: no timeline, autotuning or suspension": (
        {},
        {
            "HOROVOD_TIMELINE": None,
            "HOROVOD_AUTOTUNE": None,
            "HOROVOD_CYCLE_TIME": None,
            "suspend": None,
        },
    ),
    "no values: limits of losses, stalls, grace and retries": (
        {},
        {
            "lost_after_seconds": 12,
            "stall_timeout_seconds": 3600,
            "is_stall_timeout_default": True,
            "grace_seconds": 30,
            "HVD_GRACE_SECONDS": "30",
            "backoffLimit": 3,
        },
    ),
    "variable of workers reaches the master": (
        {"worker": {"env": [{"name": "HVD_TAG_OUTPUT", "value": "1"}]}},
        {"HVD_TAG_OUTPUT": "1", "master HVD_TAG_OUTPUT": "1"},
    ),
    "no values: no variables of a transport": (
        {},
        {"FI_PROVIDER": None, "UCX_TLS": None, "NCCL_IB_DISABLE": None, "UCX_NET_DEVICES": None},
    ),
    "cycle time and autotuning": (
        {"horovod": {"cycleTimeMs": 2.5, "autotune": True}},
        {"HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_AUTOTUNE": "1"},
    ),
    "timeline and log of autotuning are below the output path": (
        {
            "horovod": {"timeline": True, "autotune": True},
            "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/o"}]},
        },
        {
            "HOROVOD_TIMELINE": "$(OUTPUT_PATH)/horovod-timeline.json",
            "HOROVOD_AUTOTUNE_LOG": "$(OUTPUT_PATH)/horovod-autotune.csv",
        },
    ),
    "fusion threshold in bytes": (
        {"horovod": {"fusionThresholdMiB": 32}},
        {"HOROVOD_FUSION_THRESHOLD": "33554432"},
    ),
    "fusion threshold of 0": (
        {"horovod": {"fusionThresholdMiB": 0}},
        {"HOROVOD_FUSION_THRESHOLD": "0"},
    ),
    "autotuning": ({"horovod": {"autotune": True}}, {"HOROVOD_AUTOTUNE": "1"}),
    "mode direct leaves the fusion threshold to Horovod": (
        {"launch": {"mode": "direct"}},
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "no queue": ({}, {"HVD_IN_QUEUE": None}),
    "queue": ({"queueName": "team"}, {"HVD_IN_QUEUE": "1"}),
    "GPUs of AMD leave the fusion threshold to Horovod": (
        {"worker": {"slots": 1, "resources": {"limits": {"amd.com/gpu": 1}}}},
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "accelerators of Habana leave the fusion threshold to Horovod": (
        {"worker": {"resources": {"limits": {"habana.ai/gaudi": 1}}}},
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "runtime class leaves the fusion threshold to Horovod": (
        {"worker": {"podSpec": {"runtimeClassName": "x"}}},
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "fusion threshold of the user's variable": (
        {"worker": {"env": [{"name": "HOROVOD_FUSION_THRESHOLD", "value": "0"}]}},
        {"HOROVOD_FUSION_THRESHOLD": "0"},
    ),
    "variables of a Secret keep fusion by ranks": (
        {"worker": {"envFrom": [{"secretRef": {"name": "ours"}}]}},
        {"HVD_FUSION_BY_RANKS": "1"},
    ),
    "resource claims leave the fusion threshold to Horovod": (
        {"worker": {"podSpec": {"resourceClaims": [{"name": "gpu"}]}}},
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "equal groups have fusion by ranks": (
        {"workerGroups": [{"name": "a"}, {"name": "b"}]},
        {"HVD_FUSION_BY_RANKS": "1"},
    ),
    "fusion threshold of one group": (
        {
            "workerGroups": [
                {"name": "a"},
                {"name": "b", "env": [{"name": "HOROVOD_FUSION_THRESHOLD", "value": "0"}]},
            ]
        },
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "image of one group": (
        {"workerGroups": [{"name": "a"}, {"name": "b", "image": {"tag": "2"}}]},
        {"HVD_FUSION_BY_RANKS": None},
    ),
    "workers of all groups": (
        {"workerGroups": [{"name": "a", "number": 3}, {"name": "b", "number": 2}]},
        {"HVD_WORKERS": "5"},
    ),
    "no module is imported in advance": ({"launch": {"preload": []}}, {"HVD_PRELOAD": ""}),
    "modules are imported in advance": (
        {"launch": {"preload": ["torch", "horovod.torch"]}},
        {"HVD_PRELOAD": "torch horovod.torch"},
    ),
    "framework": (
        {"launch": {"framework": "torch"}},
        {"HVD_FRAMEWORK": "torch", "master HVD_FRAMEWORK": "torch"},
    ),
    "losses and stalls are not detected": (
        {"launch": {"lostAfterSeconds": 0, "stallTimeoutSeconds": 0}},
        {
            "lost_after_seconds": 0,
            "stall_timeout_seconds": 0,
            "is_stall_timeout_default": False,
            "HVD_STALL_TIMEOUT_SECONDS": "0",
        },
    ),
    "stalls by default": (
        {"launch": {"stallTimeoutSeconds": None}},
        {"HVD_STALL_TIMEOUT_SECONDS": "3600"},
    ),
    "no grace and no retries": (
        {"master": {"terminationGracePeriodSeconds": 0, "backoffLimit": 0}},
        {"grace_seconds": 0, "backoffLimit": 0},
    ),
    "suspended run": ({"master": {"suspend": True}}, {"suspend": True, "replicas": 0}),
    "interface": (
        {"network": {"interface": "ib0"}},
        {
            "interface": "ib0",
            "NCCL_SOCKET_IFNAME": "ib0",
            "GLOO_SOCKET_IFNAME": "ib0",
            "HOROVOD_GLOO_IFACE": "ib0",
            "OMPI_MCA_btl_tcp_if_include": "ib0",
            "FI_TCP_IFACE": "ib0",
            "UCX_NET_DEVICES": "ib0",
        },
    ),
    "interface on the host network": (
        {"network": {"interface": "ib0"}, "hostNetwork": True},
        {"interface": "", "NCCL_SOCKET_IFNAME": "ib0"},
    ),
    "transport TCP": (
        {"network": {"transport": "TCP", "interface": "eth1"}},
        {
            "transport": "TCP",
            "FI_PROVIDER": "tcp",
            "UCX_TLS": "self,sm,tcp",
            "NCCL_IB_DISABLE": "1",
            "UCX_NET_DEVICES": "eth1",
        },
    ),
    "transport RDMA": (
        {"network": {"transport": "RDMA", "interface": "eth1"}},
        {
            "transport": "RDMA",
            "UCX_NET_DEVICES": None,
            "FI_PROVIDER": None,
            "UCX_TLS": None,
            "NCCL_IB_DISABLE": None,
        },
    ),
    "default network policy": ({"networkPolicy": {"enabled": None}}, {"network policies": 1}),
    "host network and host PIDs of workers": (
        {
            "hostNetwork": True,
            "agent": {"port": 29999},
            "worker": {"podSpec": {"hostPID": True}},
        },
        {
            "hostNetwork": True,
            "hostPID": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "master hostNetwork": None,
            "master hostPID": None,
            "master dnsPolicy": None,
        },
    ),
    "no metrics": (
        {},
        {
            "HVD_METRICS_PORT": None,
            "HVD_METRICS_DIR": METRICS,
            "master ports": None,
        },
    ),
    "metrics": (
        {"metrics": {"enabled": True, "port": 9401}},
        {
            "HVD_METRICS_PORT": "9401",
            "ports": [
                {"name": "agent", "containerPort": 2222},
                {"name": "metrics", "containerPort": 9401},
            ],
            "master HVD_METRICS_PORT": "9401",
            "master ports": [{"name": "metrics", "containerPort": 9401}],
        },
    ),
    "group inherits and removes values of all workers": (
        {
            "worker": {
                "slots": 2,
                "nodeSelector": {"pool": "gpu"},
                "image": {"tag": "2"},
                "resources": {
                    "requests": {"cpu": 4},
                    "limits": {"nvidia.com/gpu": 2, "memory": "8Gi"},
                },
            },
            "workerGroups": [
                {
                    "name": "a",
                    "slots": 5,
                    "nodeSelector": {"pool": None, "a": "b"},
                    "image": {"tag": None},
                    "resources": {"limits": {"nvidia.com/gpu": None}},
                }
            ],
        },
        {
            "resources": {"requests": {"cpu": 4}, "limits": {"memory": "8Gi"}},
            "nodeSelector": {"a": "b"},
            "image": "registry.example/team/app:0.28.1-tf2.21.0",
        },
    ),
    "custom command": (
        {"master": {"args": ["horovodrun", "a"]}, "launch": {"mode": "custom"}},
        {"mode": "custom", "args": ["horovodrun", "a"]},
    ),
    "spares with a custom command that starts the chart's launcher": (
        {
            "launch": {"mode": "custom"},
            "worker": {"spares": 1},
            "master": {"args": ["$(LAUNCH)", "a"]},
        },
        {"maximum": 3},
    ),
    "spares with a custom command that reads the hostfile": (
        {
            "launch": {"mode": "custom"},
            "worker": {"spares": 1},
            "master": {"args": ["a", "$(HOSTFILE)"]},
        },
        {"maximum": 3},
    ),
    "script of code": (
        {"code": {"files": {"train.py": "print()"}}},
        {"args": ["python3", "train.py"], "installs_requirements": True},
    ),
    "command with code": (
        {"code": {"files": {"train.py": "print()"}}, "master": {"args": ["python", "-u"]}},
        {"args": ["python", "-u"]},
    ),
    "requirements are ignored": (
        {
            "code": {"files": {"requirements.txt": "einops"}, "requirements": "Ignore"},
            "master": {"args": ["a"]},
        },
        {"installs_requirements": False},
    ),
}


def seen(values: Values) -> dict[str, Any]:
    """The fields of the first workers, of their container and of the Job, variables and settings;
    those of the master's pod begin with its name.
    """
    manifests = render(values)
    first, *_ = of_kind(manifests, "StatefulSet")
    job = one(manifests, "Job")
    settings = run_settings(manifests)
    of_ranks = variables([first])
    known: set[str] = set()
    for name, value in of_ranks.items():
        assert known.issuperset(re.findall(r"\$\((\w+)\)", value)), "Kubernetes would not expand it"
        known.add(name)
    deletable = [r for r in one(manifests, "Role")["rules"] if r["verbs"] == ["delete"]]
    of_master = {**variables(manifests, "Job"), **pod_spec(job), **main_container(manifests, "Job")}
    return {
        **{f"master {name}": value for name, value in of_master.items()},
        "network policies": len(of_kind(manifests, "NetworkPolicy")),
        "deletable": deletable[0]["resourceNames"],
        **pod_spec(first),
        **first["spec"],
        **main_container([first], "StatefulSet"),
        **job["spec"],
        **settings,
        **settings["groups"][0],
        **of_ranks,
    }


@pytest.mark.parametrize(("values", "expected"), EFFECTS.values(), ids=EFFECTS)
def test_values_reach_ranks_and_master(values: Values, expected: dict[str, Any]) -> None:
    settings = seen(values)
    assert {name: settings.get(name) for name in expected} == expected


@pytest.mark.parametrize("values", [{}, EVERY_POD], ids=["default", "every pod"])
def test_master_reads_the_keys_and_types_that_the_chart_writes(values: Values) -> None:
    run = parse_run(json.dumps(run_settings(render(values))))
    for part in (run, run.groups[0], run.workers[0], run.code):
        for name, hint in get_type_hints(type(part)).items():
            kinds = (int, float) if hint is float else (get_origin(hint) or hint,)
            assert type(getattr(part, name)) in kinds, name
