"""What the chart refuses of values, hvdchart refuses of a spec that says the same: ADR 28."""

from __future__ import annotations

import re

import pytest

from hvdchart.chart_files import max_workers, read_data
from hvdchart.errors import SpecError
from hvdchart.spec.load import parse_spec
from tests.chart.render import Values, refusal

NODE = "{name: a, count: 2, coresPerSocket: 4}"
NAME = "r" * 30
GROUP = "n" * (read_data("resources.json")["statefulSetName"]["alone"] - 30)
VISIBLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}
MANY = max_workers()
CUSTOM = "train: {command: [mpirun, train]}\nlaunch: {mode: custom, "

# The spec's wrong key, what the chart names of the values, the spec's nodes and the rest of it, and
# values that say the same.
CASES: dict[str, tuple[str, str, str, str, Values]] = {
    "names of groups": (
        "nodes[1].name",
        "workerGroups",
        f"{NODE}, {NODE}",
        "",
        {"workerGroups": [{"name": "a"}, {"name": "a"}]},
    ),
    "a group of the master's name": (
        "nodes[1].name",
        "workerGroups[].name",
        f"{NODE}, {{name: master, count: 1, coresPerSocket: 4}}",
        "",
        {"workerGroups": [{"name": "a"}, {"name": "master"}]},
    ),
    "a long name": (
        "nodes[1].name",
        "StatefulSet name",
        f"{NODE}, {{name: {GROUP}, count: 1, coresPerSocket: 4}}",
        f"name: {NAME}\n",
        {"fullnameOverride": NAME, "workerGroups": [{"name": "a"}, {"name": GROUP}]},
    ),
    "too many workers": (
        "nodes",
        "number and spares",
        f"{{name: a, count: {MANY}, spares: 1, coresPerSocket: 4}}",
        "",
        {"worker": {"number": MANY, "spares": 1}},
    ),
    "a minimum above the number": (
        "nodes[0].minimum",
        "minimum is",
        "{name: a, count: 2, minimum: 3, coresPerSocket: 4}",
        "",
        {"worker": {"number": 2, "minimum": 3}},
    ),
    "slots that are not the GPUs": (
        "nodes[0].tuning.slots",
        "slots is",
        "{name: a, count: 2, gpus: 2, tuning: {slots: 4}}",
        "",
        {"worker": {"slots": 4, "resources": {"limits": {"nvidia.com/gpu": 2}}}},
    ),
    "a variable of the device plugin": (
        "train.env.NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "{name: a, count: 2, gpus: 1}",
        "train: {command: [a], env: {NVIDIA_VISIBLE_DEVICES: '0'}}\n",
        {"worker": {"env": [VISIBLE], "resources": {"limits": {"nvidia.com/gpu": 1}}}},
    ),
    "a variable of the chart": (
        "train.env.HVD_RUN",
        "HVD_RUN",
        NODE,
        "train: {command: [a], env: {HVD_RUN: x}}\n",
        {"worker": {"env": [{"name": "HVD_RUN", "value": "x"}]}},
    ),
    "a volume of the chart": (
        "volumes.programs",
        '"programs"',
        NODE,
        "volumes: {programs: {hostPath: /a, mountPath: /work}}\n",
        {"volumes": [{"name": "programs", "hostPath": {"path": "/a"}}]},
    ),
    "a path of the chart": (
        "volumes.work.mountPath",
        "mountPath /horovod",
        NODE,
        "volumes: {work: {hostPath: /a, mountPath: /horovod}}\n",
        {"volumeMounts": [{"name": "work", "mountPath": "/horovod"}]},
    ),
    "a timeline without output": (
        "horovod.timeline",
        "horovod.timeline",
        NODE,
        "horovod: {timeline: true}\n",
        {"horovod": {"timeline": True}},
    ),
    "the launcher's line without mode custom": (
        "train.command",
        "$(LAUNCH)",
        NODE,
        "train: {command: [$(LAUNCH), train]}\n",
        {"master": {"args": ["$(LAUNCH)", "train"]}},
    ),
    "options that mode direct does not take": (
        "launch.options",
        "launch.options",
        NODE,
        "launch: {mode: direct, options: [--other]}\n",
        {"launch": {"mode": "direct", "options": ["--other"]}},
    ),
    "options that a custom command does not use": (
        "launch.options",
        "launch.options",
        NODE,
        f"{CUSTOM}options: [--other]}}\n",
        {
            "launch": {"mode": "custom", "options": ["--other"]},
            "master": {"args": ["mpirun", "train"]},
        },
    ),
    "a binding that a custom command does not use": (
        "tuning.binding",
        "launch.binding",
        NODE,
        f"{CUSTOM}}}\ntuning: {{binding: core}}\n",
        {
            "launch": {"mode": "custom", "binding": {"to": "core", "coresPerRank": 1}},
            "master": {"args": ["mpirun", "train"]},
        },
    ),
    "idle workers of a launcher of the chart": (
        "launch.allowIdleWorkers",
        "launch.allowIdleWorkers",
        NODE,
        "launch: {allowIdleWorkers: true}\n",
        {"launch": {"allowIdleWorkers": True}},
    ),
    "a launcher within a launch": (
        "train.command",
        "master.args begins",
        NODE,
        "train: {command: [mpirun, -np, '2', train]}\n",
        {"master": {"args": ["mpirun", "-np", "2", "train"]}},
    ),
}


@pytest.mark.parametrize(("key", "named", "nodes", "rest", "values"), CASES.values(), ids=CASES)
def test_chart_and_spec_refuse_the_same(
    key: str, named: str, nodes: str, rest: str, values: Values
) -> None:
    defaults = {"name": "run", "train": "{command: [a]}"}
    missing = [f"{name}: {value}\n" for name, value in defaults.items() if f"{name}:" not in rest]
    head = f"apiVersion: hvdchart/v1\nimage: {{repository: a}}\nnodes: [{nodes}]\n"
    with pytest.raises(SpecError, match=rf"(^|\s){re.escape(key)}: "):
        parse_spec(head + "".join(missing) + rest)
    message = refusal(values)
    assert "Error: execution error" in message
    assert named in message
