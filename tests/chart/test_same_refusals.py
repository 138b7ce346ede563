"""The chart and hvdchart refuse the same, of values and of a spec that says the same: ADR 28."""

from __future__ import annotations

import re

import pytest

from hvdchart.chart_files import max_workers, read_data
from hvdchart.errors import SpecError
from hvdchart.spec.load import parse_spec
from tests.chart.render import Values, refusal, render

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
# The spec's nodes and the rest of it, and values that say the same: nearly what CASES has.
ACCEPTED: dict[str, tuple[str, str, Values]] = {
    "a name of the longest length": (
        f"{NODE}, {{name: {GROUP[:-1]}, count: 1, coresPerSocket: 4}}",
        f"name: {NAME}\n",
        {"fullnameOverride": NAME, "workerGroups": [{"name": "a"}, {"name": GROUP[:-1]}]},
    ),
    "all workers that a run may have": (
        f"{{name: a, count: {MANY}, coresPerSocket: 4}}",
        "",
        {"worker": {"number": MANY}},
    ),
    "a minimum of all workers": (
        "{name: a, count: 2, minimum: 2, coresPerSocket: 4}",
        "",
        {"worker": {"number": 2, "minimum": 2}},
    ),
    "a rank for each GPU": (
        "{name: a, count: 2, gpus: 2, tuning: {slots: 2}}",
        "",
        {"worker": {"slots": 2, "resources": {"limits": {"nvidia.com/gpu": 2}}}},
    ),
    "a variable of the chart that users set": (
        NODE,
        "train: {command: [a], env: {HVD_TAG_OUTPUT: '1'}}\n",
        {"worker": {"env": [{"name": "HVD_TAG_OUTPUT", "value": "1"}]}},
    ),
    "a volume whose name begins as one of the chart's": (
        NODE,
        "volumes: {programs-2: {hostPath: /a, mountPath: /work}}\n",
        {"volumes": [{"name": "programs-2", "hostPath": {"path": "/a"}}]},
    ),
}
# Paths at which a volume is refused: the chart's own files are there, or those of the system.
REFUSED_PATHS = [
    "/",
    "/dev",
    "/etc/",
    "/proc",
    "/sys",
    "/horovod/",
    "//horovod/./keys",
    "/horovod/archive",
    "/horovod/bin/hvd_pods/rank",
    "/horovod/code",
    "/horovod/code-source",
    "/horovod/generated/metrics",
    "/horovod/keys/own",
]
# In the place of a volume of the chart, or beside what is refused.
ACCEPTED_PATHS = [
    "/tmp",
    "/dev/shm",
    "/dev/infiniband",
    "/etc/pki",
    "/horovod/code/data",
    "/horovod/data",
    "/horovod2",
    "/system",
]


def parse(nodes: str, rest: str) -> None:
    """Parse a spec, with what it needs where `rest` has it not."""
    defaults = {"name": "run", "train": "{command: [a]}"}
    missing = [f"{name}: {value}\n" for name, value in defaults.items() if f"{name}:" not in rest]
    head = f"apiVersion: hvdchart/v1\nimage: {{repository: a}}\nnodes: [{nodes}]\n"
    parse_spec(head + "".join(missing) + rest)


def mounted_at(path: str) -> tuple[str, Values]:
    """A volume at the path: in the rest of a spec, and in values."""
    rest = f"volumes: {{work: {{hostPath: /a, mountPath: {path}}}}}\n"
    volume = {"name": "work", "hostPath": {"path": "/a"}}
    return rest, {"volumes": [volume], "volumeMounts": [{"name": "work", "mountPath": path}]}


@pytest.mark.parametrize(("key", "named", "nodes", "rest", "values"), CASES.values(), ids=CASES)
def test_chart_and_spec_refuse_the_same(
    key: str, named: str, nodes: str, rest: str, values: Values
) -> None:
    with pytest.raises(SpecError, match=rf"(^|\s){re.escape(key)}: "):
        parse(nodes, rest)
    message = refusal(values)
    assert "Error: execution error" in message
    assert named in message


@pytest.mark.parametrize(("nodes", "rest", "values"), ACCEPTED.values(), ids=ACCEPTED)
def test_chart_and_spec_accept_the_same(nodes: str, rest: str, values: Values) -> None:
    parse(nodes, rest)
    render(values)


@pytest.mark.parametrize("path", REFUSED_PATHS)
def test_chart_and_spec_refuse_a_volume_at_a_path_that_is_in_use(path: str) -> None:
    rest, values = mounted_at(path)
    with pytest.raises(SpecError, match=r"(^|\s)volumes\.work\.mountPath: "):
        parse(NODE, rest)
    assert f"volumeMounts has the mountPath {path}:" in refusal(values)


@pytest.mark.parametrize("path", ACCEPTED_PATHS)
def test_chart_and_spec_accept_a_volume_at_any_other_path(path: str) -> None:
    rest, values = mounted_at(path)
    parse(NODE, rest)
    render(values)
